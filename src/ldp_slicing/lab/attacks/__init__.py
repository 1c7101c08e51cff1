"""What an adversary can learn from releases. Every attack is a function, and works with any plan and view."""
