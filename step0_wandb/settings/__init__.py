"""The tool's own settings: every option, and where its value comes from."""
