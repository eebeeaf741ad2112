// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"

	"golang.org/x/term"

	"github.com/mailstead/mailstead/internal/server"
)

// serviceFlags are the flags that name the service for operator commands.
type serviceFlags struct {
	Data     string `help:"The service's data folder." default:"/var/lib/mailstead" placeholder:"DIR"`
	Database string `help:"\"sqlite\" in the data folder, or a postgres:// URL." default:"sqlite" placeholder:"URL"`
}

// withAdminTools runs do with the service's database open. An interruption ends the context.
func (w serviceFlags) withAdminTools(do func(ctx context.Context, d *server.AdminTools) error) error {
	ctx, stop := signalContext()
	defer stop()
	d, err := server.OpenAdminTools(ctx, w.Data, w.Database)
	if err != nil {
		return err
	}
	err = do(ctx, d)
	if ctx.Err() != nil {
		err = errors.New("interrupted; what was done until then stays done")
	}
	return errors.Join(err, d.Close())
}

// printJSON prints a value as one line of JSON.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// printable makes foreign text, such as a host's reply, safe for a terminal: one line, truncated to
// most characters.
func printable(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return '?'
		}
		return r
	}, s)
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}

// formatTime formats a time; "-" if it is zero.
func formatTime(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.DateTime) + "Z"
}

// formatAge formats the time since a moment, rounded.
func formatAge(since time.Time) string {
	switch d := time.Since(since); {
	case since.IsZero():
		return "-"
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(0, int(d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

// isTerminal reports whether a file is a terminal. Other devices, such as /dev/null, are not.
func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }
