"""What the HTTP servers of both kinds of daemons share."""
