from ldp_slicing.cli import app

if __name__ == "__main__":  # a worker process imports this under another name
    app()
