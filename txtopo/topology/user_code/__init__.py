"""The user's code: how its topology is found, which modules it has, and what it prints, raises and forks."""
