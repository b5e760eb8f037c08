"""The claims of the AWS post of April 2026, and the answers of a run to them.

An experiment that says `claims: post` is asked them by `tandem run`; nothing else reads this
package.
"""
