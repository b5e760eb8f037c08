"""Dashboards, alarms and their cost, as plain values: their content, before anybody draws them.

Invariant: pure functions of the environment, its experiments and the catalogue; they query neither
AWS nor a clock. The CloudFormation stack and the page without AWS are made from the same widgets.
"""
