// SPDX-License-Identifier: Apache-2.0

package db

// ListSize is how many values a query takes with IN ($1, …, $16).
const ListSize = 16

// ListArgs returns the arguments of such a query for n values; it repeats the last one. More
// arguments can be appended.
func ListArgs(n int, value func(i int) any) []any {
	args := make([]any, ListSize, ListSize+2)
	for i := range args {
		args[i] = value(min(i, n-1))
	}
	return args
}
