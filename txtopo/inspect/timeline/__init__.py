"""What a run does and did, moment by moment, from the files that it leaves for the page."""
