// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/fault"
)

// explain returns an error in one line for the command line: it replaces the API's fields by the
// command's flags, and omits codes. The field of a flag is its name, or the value of its tag
// "field".
func explain(err error, flags []*kong.Flag) string {
	text := err.Error()
	var f *fault.Error
	var p *client.Problem
	switch {
	case errors.As(err, &f):
		said := joinErrors(f.Message, f.Fields, flags)
		if f.Cause != nil {
			said += " " + f.Cause.Error()
		}
		text = strings.Replace(text, f.Error(), said, 1)
	case errors.As(err, &p) && p.Code != "":
		fields := make([]fault.FieldError, len(p.Errors))
		for i, e := range p.Errors {
			fields[i] = fault.FieldError{Path: e.Field, Message: e.Message}
		}
		said := joinErrors(p.Detail, fields, flags)
		if p.Status >= 500 && p.RequestID != "" { // for finding it in the service's log
			said += " [request " + p.RequestID + "]"
		}
		text = strings.Replace(text, p.Error(), said, 1)
	}
	return strings.ReplaceAll(strings.TrimPrefix(text, "mailstead: "), "\n", "; ")
}

// joinErrors returns the errors of all fields without duplicates; with none, the message.
func joinErrors(message string, fields []fault.FieldError, flags []*kong.Flag) string {
	if len(fields) == 0 {
		return message
	}
	var all []string
	for _, field := range fields {
		said := field.Message
		if name := findFlag(field.Path, flags); name != "" {
			said = "--" + name + ": " + said
		}
		if !slices.Contains(all, said) {
			all = append(all, said)
		}
	}
	return strings.Join(all, " ")
}

var indexPattern = regexp.MustCompile(`\[\d+\]`)

// findFlag returns the flag of a field, such as scopes[0] or limits.burst; "" if there is none.
func findFlag(field string, flags []*kong.Flag) string {
	field = indexPattern.ReplaceAllString(field, "")
	name := strings.NewReplacer("_", "-", ".", "-").Replace(strings.TrimPrefix(field, "limits."))
	for _, f := range flags {
		if f.Name == name || f.Tag.Get("field") == field {
			return f.Name
		}
	}
	return ""
}
