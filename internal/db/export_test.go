// SPDX-License-Identifier: Apache-2.0

package db

// Rendered shows tests a query's text as an engine gets it.
func Rendered(e Engine, text string) string { return render(e, text) }
