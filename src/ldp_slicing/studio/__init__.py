"""The studio: the page that privatises images in a browser, its server, and the collector of releases."""
