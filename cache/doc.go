// Package cache holds the two worlds of attachments: which volumes ought to be attached to which nodes
// ([DesiredStateOfWorld]), and which are ([ActualStateOfWorld]). Beside them is [World], a generic keyed world.
package cache
