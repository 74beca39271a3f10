"""What runs in a task of Spark: a stage of a job, and what it sends to the driver while it runs."""
