// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/folder"
)

const (
	// maxListed is how many folders a source may list, and listing bounds that
	// in bytes.
	maxListed = 10_000
	listing   = 8 << 20
	// together is how many folders are asked for at once.
	together = 20
)

// task is a folder to be copied.
type task struct {
	n              int64
	name, target   string
	subscribed     bool
	validity, last uint32 // what is done there
	messages       int64
	bytes          int64 // -1: not known yet
	unweighed      bool  // the source had trouble with saying it
	renewed        bool  // UIDVALIDITY has changed: which message is to blame can't be pinned down
	refused        bool  // the source did not open it the first time

	window   int               // how many messages are asked for at once
	narrower bool              // the trouble was pinned down more closely, which is a kind of progress
	at       uint32            // the message being read; 0 for none
	suspect  map[uint32]int    // messages at which the line broke, and how often
	broken   map[uint32]string // messages that can't be had, and why
	passed   int               // how many of them there were since one was copied
	doubted  bool              // since then the source refused some: it may be in trouble itself
	asking   bool              // for another than the doubted one
	alone    bool              // there is no other
	gives    bool              // it came, just before
	given    uint32            // a message that came; 0 if none is known
}

var (
	planned = db.SQL(`UPDATE migration SET planned = 1, folders = $3, messages = $4, bytes = $5, retries = 0, trouble = '', updated_at = $6
		WHERE id = $1 AND tenure = $2 AND state = 'running' AND planned = 0`)
	insertFolder = db.SQL(`INSERT INTO migration_folder (migration, n, name, target, state, trouble, subscribed, uidvalidity, last_uid,
			messages, done, copied, skipped, failed, bytes)
		VALUES ($1, $2, $3, $4, 'waiting', '', $5, 0, 0, $6, 0, 0, 0, 0, $7)`)
	insertFailure = db.SQL(`INSERT INTO migration_failure (migration, n, folder, uid, why)
		SELECT $1, COALESCE(MAX(n), 0) + 1, $2, $3, $4 FROM migration_failure WHERE migration = $1 HAVING COALESCE(MAX(n), 0) < 1000`)
	waiting = db.SQL(`SELECT n, name, target, subscribed, uidvalidity, last_uid, messages, bytes FROM migration_folder
		WHERE migration = $1 AND state = 'waiting' ORDER BY n`)
)

// plan finds out what there is to copy, and where to, and writes it down.
func (j *job) plan(ctx context.Context, src *source) error {
	all, spaces, lost, err := src.folders()
	if err != nil {
		return err
	}
	if len(j.Source.Folders) > 0 { // it is told of those that were chosen alone
		lost = nil
	}
	here, err := j.o.Folders.Folders(ctx, j.Mailbox)
	if err != nil {
		return own(err)
	}
	special := map[string]string{}
	for _, f := range here {
		if f.Special != "" {
			special[f.Special] = f.Name
		}
	}
	arrange(all)
	// The client library decodes different names to the same, and asks for one.
	twice := map[string]bool{}
	all = slices.CompactFunc(all, func(a, b listed) bool {
		if a.name == b.name && !a.closed() && !b.closed() && !strings.EqualFold(a.name, folder.Inbox) {
			twice[a.name] = true
		}
		return a.name == b.name
	})
	c := newChart(all, spaces, special)
	var tasks []*task
	missing := slices.Clone(j.Source.Folders)
	for i := range all {
		l := &all[i]
		target := c.target(l)
		if !c.wanted(l, j.Source.Folders) {
			continue
		}
		levels := strings.Join(c.levels(l), string(folder.Separator))
		missing = slices.DeleteFunc(missing, func(name string) bool { return name == l.name || name == levels })
		tasks = append(tasks, &task{n: int64(len(tasks) + 1), name: l.name, target: target, subscribed: l.subscribed, bytes: -1})
		if twice[l.name] {
			lost = append(lost, Failure{l.name, 0, "The source lists this name more than once. If these are several folders, only one of them is copied."})
		}
	}
	for _, name := range missing {
		lost = append(lost, Failure{name, 0, "There is no such folder at the source."})
	}
	if most := j.o.Folders.MaxFolders; len(tasks) > most {
		return final{fmt.Sprintf("The source has %d folders; a mailbox can have %d. Choose which to copy.", len(tasks), most)}
	}
	if err := src.measure(tasks); err != nil {
		return err
	}
	return j.writePlan(ctx, tasks, lost)
}

func (j *job) writePlan(ctx context.Context, tasks []*task, lost []Failure) error {
	var messages, bytes int64
	for _, t := range tasks {
		messages += t.messages
		bytes += max(0, t.bytes)
	}
	err := j.o.DB.Tx(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, planned.With(j.ID, j.tenure, len(tasks), messages, bytes, db.Micros(j.o.Now())))
		if err != nil {
			return err
		}
		if n == 0 {
			return errLost
		}
		for _, t := range tasks {
			subscribed := 0
			if t.subscribed {
				subscribed = 1
			}
			if _, err := tx.Exec(ctx, insertFolder.With(j.ID, t.n, t.name, t.target, subscribed, t.messages, t.bytes)); err != nil {
				return err
			}
		}
		for _, x := range lost {
			if _, err := tx.Exec(ctx, insertFailure.With(j.ID, x.Folder, x.UID, x.Why)); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		j.gained()
	}
	return own(err)
}

func (j *job) readTasks(ctx context.Context) ([]*task, error) {
	return db.All(ctx, j.o.DB, waiting.With(j.ID), func(r db.Row) (*task, error) {
		t := &task{window: fullWindow, suspect: map[uint32]int{}, broken: map[uint32]string{}}
		var subscribed int
		err := r.Scan(&t.n, &t.name, &t.target, &subscribed, &t.validity, &t.last, &t.messages, &t.bytes)
		t.subscribed = subscribed != 0
		return t, err
	})
}

// folders lists what there is, and whose; and what has a name that can't be asked
// for or kept.
func (s *source) folders() (all []listed, spaces namespaces, lost []Failure, err error) {
	defer s.line.rest()
	if s.offers(imap.CapNamespace) {
		s.line.ask(small)
		data, err := s.Namespace().Wait()
		if err := s.did(err); err != nil {
			if _, no := refused(err); !no {
				return nil, spaces, nil, err
			}
			data = &imap.NamespaceData{}
		}
		for _, d := range data.Personal {
			spaces.personal = append(spaces.personal, d.Prefix)
		}
		for _, d := range slices.Concat(data.Other, data.Shared) {
			spaces.others = append(spaces.others, d.Prefix)
		}
	}
	var options *imap.ListOptions
	extended := s.offers(imap.CapListExtended)
	if extended {
		options = &imap.ListOptions{ReturnSubscribed: true, ReturnSpecialUse: s.offers(imap.CapSpecialUse)}
	}
	s.line.ask(listing)
	cmd := s.List("", "*", options)
	for data := cmd.Next(); data != nil; data = cmd.Next() {
		if len(all) >= maxListed {
			_ = s.line.Close()
			_ = cmd.Close()
			return nil, spaces, nil, final{fmt.Sprintf("The source has more than %d folders.", maxListed)}
		}
		l := listed{name: data.Mailbox, attrs: data.Attrs, subscribed: !extended}
		if data.Delim != 0 {
			l.delim = string(data.Delim)
		}
		l.subscribed = l.subscribed || l.has(imap.MailboxAttrSubscribed)
		if strings.Contains(l.name, "\x00") || len(l.name) > maxText {
			lost = append(lost, Failure{shown(l.name), 0, fmt.Sprintf("The name of this folder has more than %d bytes, or characters that can't be kept.", maxText)})
			continue
		}
		all = append(all, l)
	}
	for _, name := range s.line.unreadable() {
		lost = append(lost, Failure{name, 0, "The source does not encode the name of this folder as IMAP says. Once it is renamed there, a new migration copies it."})
	}
	return all, spaces, lost, s.did(cmd.Close())
}

// measure finds out how much is in each folder.
func (s *source) measure(tasks []*task) error {
	defer s.line.rest()
	sizes := s.offers(imap.CapStatusSize)
	for some := range slices.Chunk(tasks, together) {
		s.line.ask(small)
		var asked []*imapclient.StatusCommand
		for _, t := range some {
			asked = append(asked, s.Status(t.name, &imap.StatusOptions{NumMessages: true, Size: sizes}))
		}
		for i, cmd := range asked {
			data, err := cmd.Wait()
			if err := s.did(err); err != nil {
				if _, no := refused(err); no {
					continue // what is wrong with it shows when it is opened
				}
				return err
			}
			if data.NumMessages != nil {
				some[i].messages = int64(*data.NumMessages)
			}
			if data.Size != nil {
				some[i].bytes = *data.Size
			}
		}
	}
	return nil
}
