"""What a setting is, for topologies and daemons alike: its name, its default, and which values it takes."""
