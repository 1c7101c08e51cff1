from ldp_slicing.cli import app

app()
