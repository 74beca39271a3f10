"""What commands print: the progress of a run, a summary at its end, and graphs of topologies."""
