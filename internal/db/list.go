// SPDX-License-Identifier: Apache-2.0

package db

// InListSize is how many values a query takes with IN ($1, …, $16).
const InListSize = 16

// InListArgs returns the arguments of such a query for n values; it repeats the last one. More
// arguments can be appended.
func InListArgs(n int, value func(i int) any) []any {
	args := make([]any, InListSize, InListSize+2)
	for i := range args {
		args[i] = value(min(i, n-1))
	}
	return args
}
