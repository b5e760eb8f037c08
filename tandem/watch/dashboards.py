"""Every dashboard of an environment: one that compares the arms of each experiment, one for the machine, one for money.

Invariant: a function of the scope alone. What is drawn is published, and a figure that the bench publishes is drawn.

Expressions are few, so that tandem.watch.expression can evaluate each of them. An ID is a line's or an expression's id,
a NUMBER a plain decimal:

    ID / ID                             speed-up: of two lines of one statistic
    ID / NUMBER                         e.g. node-minutes of a period -> nodes or hours
    ID / NUMBER * NUMBER                e.g. hours -> USD
    100 * ID / ID                       a share in percent
    RUNNING_SUM(FILL(ID, 0)) / NUMBER
    RUNNING_SUM(FILL(ID, 0)) / NUMBER * NUMBER
    SEARCH('{"NAMESPACE",DIM,DIM,...} MetricName="NAME" DIM="VALUE" ...', 'STATISTIC', PERIOD_S)
    SUM(SEARCH(...))                    one series: the sum of what was found, period by period

A SEARCH finds the metrics of its namespace that have exactly the named dimensions and, where a value is given, exactly
that value; each found one is a series, in the order of the values of its dimensions. Its label may hold
`${PROP('Dim.NAME')}`, the value of a found series' dimension.

A graph whose view is `numbers` has one period: the whole time range that is looked at (CloudWatch's
setPeriodToTimeRange), for its lines as for its expressions.
"""

from __future__ import annotations
