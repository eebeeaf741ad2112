// SPDX-License-Identifier: Apache-2.0

// Command load measures Mailstead and, if installed, Postfix and Dovecot on the same work in the
// same run, and prints one table. It starts every server itself, on loopback, in a temporary
// directory; run it with script/bench.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"
)

// options are the flags.
type options struct {
	mailstead    string
	postgres     string
	dir          string
	rounds       int
	accounts     int
	limit        time.Duration
	count        int
	relay        int
	imapMessages int
	big          int
	conns        int
	large        int // bytes per large attachment
	only         *regexp.Regexp
	skip         *regexp.Regexp
	largeFolder  int  // messages in the large folder; 0: not measured
	growth       bool // requested by name
	quick        bool
	sinkTLS      bool
	keep         bool
}

func parse(args []string) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("load", flag.ContinueOnError)
	f.StringVar(&o.mailstead, "mailstead", "bin/mailstead", "the `binary` to measure; none with an empty name")
	f.StringVar(&o.postgres, "postgres", os.Getenv("MAILSTEAD_TEST_POSTGRES"), "postgres:// `URL` of a server in which databases may be made")
	f.StringVar(&o.dir, "dir", os.TempDir(), "`folder` for everything, on the disk to measure")
	f.IntVar(&o.rounds, "rounds", 3, "how often everything is done; the table shows medians")
	f.DurationVar(&o.limit, "time", 3*time.Second, "the longest `time` of a run that counts what is accepted")
	f.IntVar(&o.count, "count", 6000, "the most messages of such a run")
	only := f.String("only", "", "do only the work whose name (api, submission, mx, relay, imap, size, footprint, large; growth and nothing else if asked for) matches this `pattern`")
	skip := f.String("skip", "", "leave out the systems whose name matches this `pattern`")
	million := f.Bool("million", false, "fill a folder of a million messages too, and compare it with one of a thousand: half an hour more on each engine")
	f.BoolVar(&o.quick, "quick", false, "little of everything, to see that it works")
	f.BoolVar(&o.sinkTLS, "sink-tls", false, "let the sink offer STARTTLS")
	f.BoolVar(&o.keep, "keep", false, "keep the folder")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	o.accounts, o.relay, o.imapMessages, o.big, o.conns, o.large = 100, 3000, 10_000, 5, 1000, 25<<20
	if o.quick {
		o.rounds, o.accounts, o.limit, o.count, o.relay, o.imapMessages, o.big, o.conns, o.large = 1, 3, 300*time.Millisecond, 200, 100, 2000, 1, 50, 1<<20
	}
	if *million {
		o.largeFolder = 1_000_000
		if o.quick {
			o.largeFolder = 20_000
		}
	}
	var err error
	if o.only, err = regexp.Compile(*only); err != nil {
		return nil, err
	}
	o.growth = *only != "" && o.only.MatchString("growth")
	if *skip == "" {
		*skip = "^$"
	}
	o.skip, err = regexp.Compile(*skip)
	return o, err
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	b, err := openBench(o)
	if err != nil {
		return err
	}
	return b.run(ctx)
}
