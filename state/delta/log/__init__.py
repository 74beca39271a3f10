"""Delta's log as txtopo uses it: where a table lies, who owns it, which epoch may write, what is damaged."""
