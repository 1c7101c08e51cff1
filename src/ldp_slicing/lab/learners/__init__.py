"""Networks and how they are trained: models, recipes, tasks, objectives and runs."""
