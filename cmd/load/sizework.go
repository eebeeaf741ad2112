// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// syncState returns the parameters of QRESYNC: UIDVALIDITY and HIGHESTMODSEQ.
func (f *sizedFolder) syncState() (validity, modseq string, err error) {
	f.reader.Untagged = func(line []byte) {
		for _, want := range []struct {
			code string
			into *string
		}{{"[UIDVALIDITY ", &validity}, {"[HIGHESTMODSEQ ", &modseq}} {
			if _, rest, ok := bytes.Cut(line, []byte(want.code)); ok {
				number, _, _ := bytes.Cut(rest, []byte("]"))
				*want.into = string(number)
			}
		}
	}
	defer func() { f.reader.Untagged = nil }()
	_, err = f.reader.Command("SELECT Size")
	return validity, modseq, err
}

// resync changes the flags of 90 messages across the folder and expunges 10, one by one, and then
// resynchronizes.
func (r *sizeRun) resync() error {
	command := map[*sizedFolder]string{}
	for _, f := range r.folders {
		if _, err := f.reader.Command("ENABLE QRESYNC"); err != nil {
			return err
		}
		validity, modseq, err := f.syncState()
		if err != nil {
			return err
		}
		if _, err := f.writer.Command("SELECT Size"); err != nil {
			return err
		}
		for i := range 100 {
			at := 1 + i*(f.messageCount/100)
			if at++; i%10 == 9 {
				_, err = f.writer.Command(fmt.Sprintf(`STORE %d +FLAGS.SILENT (\Deleted)`, at-i/10))
				if err == nil {
					_, err = f.writer.Command("EXPUNGE")
				}
			} else {
				_, err = f.writer.Command(fmt.Sprintf(`STORE %d +FLAGS.SILENT (\Flagged)`, at-i/10))
			}
			if err != nil {
				return err
			}
		}
		command[f] = fmt.Sprintf("SELECT Size (QRESYNC (%s %s))", validity, modseq)
		f.messageCount -= 10
	}
	return r.measureBoth("qresync", 15, func(f *sizedFolder, _ int) (time.Duration, error) { return measureCommand(f.reader, command[f], 5+91) })
}

// newest appends fifty messages and fetches their envelopes.
func (r *sizeRun) newest() error {
	for _, f := range r.folders {
		var batch [][]byte
		for i := range 50 {
			batch = append(batch, smallMessage(f.messageCount+100+i, smallFolder))
		}
		if _, err := f.writer.AppendAll("Size", `(\Seen)`, batch); err != nil {
			return err
		}
		f.messageCount += len(batch)
		if _, err := f.reader.Command("NOOP"); err != nil {
			return err
		}
	}
	fetch := func(f *sizedFolder, _ int) (time.Duration, error) {
		return measureCommand(f.reader, fmt.Sprintf("FETCH %d:* (UID FLAGS INTERNALDATE RFC822.SIZE ENVELOPE)", f.messageCount-49), 50)
	}
	return errors.Join(r.measureBoth("newest-first", 1, fetch), r.measureBoth("newest", 15, fetch))
}

// changeOne stores, appends and expunges one message.
func (r *sizeRun) changeOne() error {
	err := r.measureBoth("store", 30, func(f *sizedFolder, i int) (time.Duration, error) {
		return measureCommand(f.reader, fmt.Sprintf(`STORE %d +FLAGS (\Answered)`, f.messageCount/2+i), 1)
	})
	err = errors.Join(err, r.measureBoth("append", 30, func(f *sizedFolder, i int) (time.Duration, error) {
		message := smallMessage(f.messageCount+200+i, smallFolder)
		begin := time.Now()
		_, err := f.writer.Append("Size", message)
		f.messageCount++
		return time.Since(begin), err
	}))
	return errors.Join(err, r.measureBoth("expunge", 30, func(f *sizedFolder, i int) (time.Duration, error) {
		if _, err := f.reader.Command(fmt.Sprintf(`STORE %d +FLAGS.SILENT (\Deleted)`, f.messageCount/3+i)); err != nil {
			return 0, err
		}
		f.messageCount--
		return measureCommand(f.reader, "EXPUNGE", 1)
	}))
}

// notify measures how long after the OK another session, in IDLE, is notified of an APPEND.
func (r *sizeRun) notify() error {
	for _, f := range r.folders {
		if _, err := f.reader.Command("NOOP"); err != nil {
			return err
		}
	}
	return r.measureBoth("push", 15, func(f *sizedFolder, i int) (time.Duration, error) {
		if err := f.reader.Idle(); err != nil {
			return 0, err
		}
		heard, failed := make(chan time.Time, 1), make(chan error, 1)
		go func() {
			for {
				line, err := f.reader.NextLine()
				if err != nil {
					failed <- err
					return
				}
				if bytes.HasSuffix(line, []byte(" EXISTS\r\n")) {
					heard <- time.Now()
				}
				if _, after, tagged := bytes.Cut(line, []byte(" OK ")); tagged && line[0] != '*' && len(after) > 0 {
					failed <- nil
					return
				}
			}
		}()
		if _, err := f.writer.Append("Size", smallMessage(f.messageCount+300+i, smallFolder)); err != nil {
			return 0, err
		}
		answered := time.Now()
		f.messageCount++
		at := <-heard
		if err := f.reader.Done(); err != nil {
			return 0, err
		}
		return max(0, at.Sub(answered)), <-failed
	})
}

// extraSessions is the number of additional sessions on the folder.
const extraSessions = 20

// sessions measures the memory of an additional session on the same folder.
func (r *sizeRun) sessions() error {
	if r.s.process == nil {
		return nil
	}
	var each [2]float64
	for k, f := range r.folders {
		before, err := r.s.process.memory()
		if err != nil {
			return err
		}
		for range extraSessions {
			c, err := r.connect(f)
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			if _, err := c.Command("SELECT Size"); err != nil {
				return err
			}
			if _, err := c.Command(fmt.Sprintf("FETCH %d:* FLAGS", f.messageCount-10)); err != nil {
				return err
			}
		}
		after, err := r.s.process.memory()
		if err != nil {
			return err
		}
		each[k] = max(0, after-before) / extraSessions / 1024
	}
	r.b.report.add("size/session", r.s.name, metric{r.folders[0].label + ":", each[0], kibibytes}, metric{r.folders[1].label + ":", each[1], kibibytes})
	return nil
}

// searches searches for text in ten messages, or in one.
func (r *sizeRun) searches(suffix string) error {
	times := 60
	if suffix != "" {
		suffix, times = "-"+suffix, 1
	}
	var err error
	for _, s := range []struct {
		row, keys string
		found     int
	}{
		{"subject", "SUBJECT " + rareSubject, 10}, {"from", "FROM zoroaster@", 10},
		{"header", "HEADER Message-ID <%d.note@bench-sink.net>", 1}, {"unseen", "UNSEEN", 10},
	} {
		err = errors.Join(err, r.measureBoth(s.row+suffix, times, func(f *sizedFolder, _ int) (time.Duration, error) {
			keys := s.keys
			if strings.Contains(keys, "%d") {
				keys = fmt.Sprintf(keys, f.messageCount/2)
			}
			return f.timeSearch(keys, s.found)
		}))
	}
	return err
}

// timeSearch times a search and checks the number of results, which later changes may make a little
// larger or smaller.
func (f *sizedFolder) timeSearch(keys string, want int) (time.Duration, error) {
	found := -1
	f.reader.Untagged = func(line []byte) {
		if _, rest, ok := bytes.Cut(line, []byte("COUNT ")); ok {
			digits, _, _ := bytes.Cut(bytes.TrimSpace(rest), []byte(" "))
			found, _ = strconv.Atoi(string(digits)) // a wrong number is noticed below
		}
	}
	defer func() { f.reader.Untagged = nil }()
	begin := time.Now()
	_, err := f.reader.Command("UID SEARCH RETURN (ALL COUNT) " + keys)
	took := time.Since(begin)
	if err == nil && (found < 1 || found < want-3 || found > want+60) {
		err = fmt.Errorf("UID SEARCH %s found %d messages instead of %d", keys, found, want)
	}
	return took, err
}
