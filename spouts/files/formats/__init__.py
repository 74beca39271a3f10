"""The formats of files: where each may be cut, and how a piece is read into rows."""
