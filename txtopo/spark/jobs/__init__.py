"""Jobs of Spark, from the driver's side: those of transactions, and those that are workers for a whole run."""
