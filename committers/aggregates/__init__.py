"""Aggregates: ``Sum``, ``Count`` and their like, several at once, in steps that may be taken anywhere and in any order.

Rows become *partials*, one row for each key, whose columns hold what is needed to go on: a mean's sum and count, the
first value with its time. Partials of the same keys are merged into fewer, as often as it suits, and become results in
the end. Whatever the steps and their order, integers, decimals, strings and times are the same; sums and means of
doubles may differ in their last bits.

For all aggregates: nulls are skipped, and the aggregate of nulls alone is null (a count is 0). NaN is the largest
double, as in Spark, and makes a sum NaN; -0.0 becomes 0.0.
"""
