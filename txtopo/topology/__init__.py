"""A topology as data: what builders make of the user's code, before anything runs."""
