// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mailstead/mailstead/cmd/load/imap"
)

// smallFolder is the number of messages in the smaller folder.
const smallFolder = 1000

// sizeRun runs the same work in a small folder and in a large one, each in its own mailbox.
type sizeRun struct {
	b       *bench
	s       *system
	folders [2]*sizedFolder
}

// sizedFolder is one of the two folders.
type sizedFolder struct {
	mailbox      mailbox
	messageCount int // messages
	label        string
	reader       *imap.Client // has it selected
	writer       *imap.Client
}

// sizes compares the work in a folder of a thousand messages with the same work in a folder of a
// million.
func (b *bench) sizes(ctx context.Context, s *system, round int) error {
	if round > 0 {
		return nil // one round takes long enough
	}
	boxes := s.privateMailboxes[len(s.privateMailboxes)-2:]
	r := &sizeRun{b: b, s: s, folders: [2]*sizedFolder{
		{mailbox: boxes[0], messageCount: smallFolder, label: thousands(smallFolder)},
		{mailbox: boxes[1], messageCount: b.options.largeFolder, label: thousands(float64(b.options.largeFolder))},
	}}
	defer r.close()
	if err := r.fill(ctx); err != nil {
		return err
	}
	parts := []func() error{r.selectWarm, r.resync, r.newest, r.changeOne, r.notify, r.sessions, func() error { return r.searches("scan") },
		func() error { return r.waitIndexed(ctx) }, func() error { return r.searches("") }, func() error { return r.selectCold(ctx) }}
	var err error
	for _, part := range parts {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		err = errors.Join(err, part())
	}
	return err
}

func (r *sizeRun) close() {
	for _, f := range r.folders {
		f.close()
	}
}

func (f *sizedFolder) close() {
	for _, c := range []*imap.Client{f.reader, f.writer} {
		if c != nil {
			_ = c.Close() // the measurement is done
		}
	}
	f.reader, f.writer = nil, nil
}

func (r *sizeRun) connect(f *sizedFolder) (*imap.Client, error) {
	c, err := r.s.openIMAP(f.mailbox)
	if err == nil {
		c.GrowBuffer()
	}
	return c, err
}

// open opens a folder's two sessions.
func (r *sizeRun) open(f *sizedFolder) (err error) {
	if f.reader, err = r.connect(f); err == nil {
		f.writer, err = r.connect(f)
	}
	return err
}

// smallMessage returns a small message. Ten of each folder, evenly distributed, come from a rare
// sender and have a rare word in the subject.
func smallMessage(i, n int) []byte {
	r := newRand(uint64(i))
	subject, from := randomText(r, 40)[:36], fmt.Sprintf("c%d", i%500)
	if i%(n/10) == n/20 {
		subject, from = "The "+rareSubject+" "+subject, "zoroaster"
	}
	return fmt.Appendf(nil, "From: Correspondent %d <%s@bench-sink.net>\r\nTo: Me <me@bench-home.net>\r\nSubject: %s\r\n"+
		"Date: Mon, 02 Nov 2026 10:%02d:%02d +0000\r\nMessage-ID: <%d.note@bench-sink.net>\r\n\r\n%s\r\n",
		i%500, from, subject, i/60%60, i%60, i, randomText(r, 200))
}

// appendBatch is the number of messages in one APPEND (RFC 3502).
const appendBatch = 500

// fill appends the messages like a client that imports mail, all but ten of them seen.
func (r *sizeRun) fill(ctx context.Context) error {
	for _, f := range r.folders {
		if err := r.open(f); err != nil {
			return err
		}
		if _, err := f.reader.Command("CREATE Size"); err != nil {
			return err
		}
		began := time.Now()
		for i := 0; i < f.messageCount; i += appendBatch {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			var batch [][]byte
			for k := i; k < min(i+appendBatch, f.messageCount); k++ {
				batch = append(batch, smallMessage(k, f.messageCount))
			}
			if _, err := f.writer.AppendAll("Size", `(\Seen)`, batch); err != nil {
				return err
			}
		}
		if f.messageCount > smallFolder {
			r.b.report.add("size/fill", r.s.name, rateMetric(float64(f.messageCount)/time.Since(began).Seconds()))
		}
		if _, err := f.reader.Command("SELECT Size"); err != nil {
			return err
		}
		for k := f.messageCount / 20; k < f.messageCount; k += f.messageCount / 10 {
			if _, err := f.reader.Command(fmt.Sprintf(`STORE %d -FLAGS.SILENT (\Seen)`, k+1)); err != nil {
				return err
			}
		}
	}
	return nil
}

// measureBoth measures the same in both folders in turn, and adds the medians and their ratio.
func (r *sizeRun) measureBoth(row string, times int, do func(f *sizedFolder, i int) (time.Duration, error)) error {
	took, err := alternate(r.folders, times, func(f *sizedFolder, i int) (time.Duration, error) {
		d, err := do(f, i)
		if err != nil {
			err = fmt.Errorf("%s in %s: %w", row, f.label, err)
		}
		return d, err
	})
	if err == nil {
		r.compare(row, median(took[0]), median(took[1]))
	}
	return err
}

// alternate measures both sides in turn, so that a slow moment of the machine affects both.
func alternate[T any](sides [2]T, times int, do func(side T, i int) (time.Duration, error)) (took [2][]time.Duration, err error) {
	for i := range times {
		for k, side := range sides {
			d, err := do(side, i)
			if err != nil {
				return took, err
			}
			took[k] = append(took[k], d)
		}
	}
	return took, nil
}

func (r *sizeRun) compare(row string, few, many time.Duration) {
	r.b.report.add("size/"+row, r.s.name, durationMetric(r.folders[0].label+":", few), durationMetric(r.folders[1].label+":", many),
		metric{"×", float64(many) / float64(max(few, 1)), ratio})
}

// measureCommand times a command that has this many untagged responses.
func measureCommand(c *imap.Client, command string, lines int) (time.Duration, error) {
	return measure(func() error {
		_, err := runCommand(c, command, lines)
		return err
	})
}

func (r *sizeRun) selectWarm() error {
	return r.measureBoth("select", 15, func(f *sizedFolder, _ int) (time.Duration, error) {
		if _, err := f.reader.Command("SELECT INBOX"); err != nil {
			return 0, err
		}
		return measureCommand(f.reader, "SELECT Size", 5)
	})
}

// selectCold selects the folder for the first time after a start, once the commands were used in
// another folder.
func (r *sizeRun) selectCold(ctx context.Context) error {
	if r.s.restart == nil {
		return nil
	}
	var took [2][]time.Duration
	for range 3 {
		r.close()
		if err := r.s.process.stop(); err != nil {
			return err
		}
		var err error
		if r.s.process, err = r.s.restart(ctx); err != nil {
			return err
		}
		before, err := r.s.process.memory()
		if err != nil {
			return err
		}
		for k, f := range r.folders {
			if err := r.open(f); err != nil {
				return err
			}
			_, _ = f.reader.Command("CREATE Warm") // it exists from the second time on
			if _, err := f.writer.AppendAll("Warm", `(\Seen)`, [][]byte{smallMessage(1, smallFolder), smallMessage(2, smallFolder)}); err != nil {
				return err
			}
			for _, c := range []string{"SELECT Warm", "FETCH 1:* (FLAGS ENVELOPE)", "SELECT INBOX"} {
				if _, err := f.reader.Command(c); err != nil {
					return err
				}
			}
			d, err := measureCommand(f.reader, "SELECT Size", 5)
			if err != nil {
				return err
			}
			took[k] = append(took[k], d)
		}
		after, err := r.s.process.memory()
		if err != nil {
			return err
		}
		r.b.report.add("size/rss", r.s.name, memoryMetric("before", before), memoryMetric("with both open", after))
	}
	r.compare("cold", median(took[0]), median(took[1]))
	return nil
}

// waitIndexed waits for the search index. That may take longer than a server keeps an idle session
// (RFC 9051 section 5.4), so it opens new sessions.
func (r *sizeRun) waitIndexed(ctx context.Context) error {
	r.close()
	took, err := r.s.waitIndexed(ctx)
	if took > 0 {
		r.b.report.add("size/index", r.s.name, metric{"", took.Seconds(), seconds})
	}
	for _, f := range r.folders {
		if err == nil {
			err = r.open(f)
		}
		if err == nil {
			_, err = f.reader.Command("SELECT Size")
		}
	}
	return err
}
