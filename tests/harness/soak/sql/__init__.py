"""Writers of tables of PostgreSQL beside topologies that read these."""
