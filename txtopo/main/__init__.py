"""The command ``txtopo``: the one room that knows both the command line and the page."""
