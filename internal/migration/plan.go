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
	// maxListed is the maximum number of folders in a source's list, maxListResponse its maximum
	// size in bytes.
	maxListed       = 10_000
	maxListResponse = 8 << 20
	// statusBatch is the number of folders per STATUS request.
	statusBatch = 20
)

// folderTask is a folder to copy.
type folderTask struct {
	number               int64
	name, target         string
	subscribed           bool
	uidValidity, lastUID uint32 // at the source; last UID done
	messages             int64
	bytes                int64 // -1: unknown
	sizeFailed           bool  // the source failed to report the size
	validityChanged      bool  // UIDVALIDITY has changed: the message at fault can't be found
	openRefused          bool  // the source refused to open it the first time

	window           int               // number of messages to request at once
	narrowed         bool              // the search for the bad message advanced, a kind of progress
	currentUID       uint32            // message being read; 0: none
	failureCount     map[uint32]int    // number of broken connections by message
	unreadable       map[uint32]string // reasons by unreadable message
	skippedInRow     int               // skipped since a message was last copied
	sourceDoubted    bool              // the source has refused some messages since: it may be failing
	checkingNeighbor bool              // for a neighbor of the message in doubt
	noNeighbor       bool              // the folder has no other message
	neighborReadable bool              // the neighbor was just read
	readableUID      uint32            // a readable message; 0 if none is known
}

var (
	setPlannedQuery = db.SQL(`UPDATE migration SET planned = TRUE, folders = $3, messages = $4, bytes = $5, retries = 0, error = '', updated_at = $6
		WHERE id = $1 AND lease = $2 AND state = 'running' AND NOT planned`)
	insertFolderQuery = db.SQL(`INSERT INTO migration_folder (migration, n, name, target, state, error, subscribed, uidvalidity, last_uid,
			messages, done, copied, skipped, failed, bytes)
		VALUES ($1, $2, $3, $4, 'waiting', '', $5, 0, 0, $6, 0, 0, 0, 0, $7)`)
	insertFailureQuery = db.SQL(`INSERT INTO migration_failure (migration, n, folder, uid, error)
		SELECT $1, COALESCE(MAX(n), 0) + 1, $2, $3, $4 FROM migration_failure WHERE migration = $1 HAVING COALESCE(MAX(n), 0) < 1000`)
	waitingFoldersQuery = db.SQL(`SELECT n, name, target, subscribed, uidvalidity, last_uid, messages, bytes FROM migration_folder
		WHERE migration = $1 AND state = 'waiting' ORDER BY n`)
)

// plan finds out what to copy, and where to, and stores it.
func (j *job) plan(ctx context.Context, src *session) error {
	all, spaces, lost, err := src.listFolders()
	if err != nil {
		return err
	}
	if len(j.Source.Folders) > 0 { // report only the chosen folders
		lost = nil
	}
	here, err := j.options.Folders.List(ctx, j.Mailbox)
	if err != nil {
		return wrapInternal(err)
	}
	special := map[string]string{}
	for _, f := range here {
		if f.SpecialUse != "" {
			special[f.SpecialUse] = f.Name
		}
	}
	sortFolders(all)
	// The client library decodes different names to the same one, and requests only one.
	twice := map[string]bool{}
	all = slices.CompactFunc(all, func(a, b listedFolder) bool {
		if a.name == b.name && !a.isNoSelect() && !b.isNoSelect() && !strings.EqualFold(a.name, folder.Inbox) {
			twice[a.name] = true
		}
		return a.name == b.name
	})
	c := newFolderMapper(all, spaces, special)
	var tasks []*folderTask
	missing := slices.Clone(j.Source.Folders)
	for i := range all {
		l := &all[i]
		target := c.target(l)
		if !c.includes(l, j.Source.Folders) {
			continue
		}
		levels := strings.Join(c.levels(l), string(folder.Separator))
		missing = slices.DeleteFunc(missing, func(name string) bool { return name == l.name || name == levels })
		tasks = append(tasks, &folderTask{number: int64(len(tasks) + 1), name: l.name, target: target, subscribed: l.subscribed, bytes: -1})
		if twice[l.name] {
			lost = append(lost, Failure{l.name, 0, "The source lists this name more than once. If these are several folders, only one of them is copied."})
		}
	}
	for _, name := range missing {
		lost = append(lost, Failure{name, 0, "There is no such folder at the source."})
	}
	if most := j.options.Folders.MaxFolders; len(tasks) > most {
		return permanentError{fmt.Sprintf("The source has %d folders; a mailbox can have %d. Choose which to copy.", len(tasks), most)}
	}
	if err := src.fetchStatus(tasks); err != nil {
		return err
	}
	return j.writePlan(ctx, tasks, lost)
}

func (j *job) writePlan(ctx context.Context, tasks []*folderTask, lost []Failure) error {
	var messages, bytes int64
	for _, t := range tasks {
		messages += t.messages
		bytes += max(0, t.bytes)
	}
	var rows []db.Statement
	for _, t := range tasks {
		rows = append(rows, insertFolderQuery.With(j.ID, t.number, t.name, t.target, t.subscribed, t.messages, t.bytes))
	}
	for _, x := range lost {
		rows = append(rows, insertFailureQuery.With(j.ID, x.Folder, x.UID, x.Reason))
	}
	err := j.options.DB.Tx(ctx, func(tx *db.Tx) error {
		planned := setPlannedQuery.With(j.ID, j.leaseID, len(tasks), messages, bytes, db.Micros(j.options.Now()))
		if err := tx.ExecOrFail(ctx, planned, errLeaseLost); err != nil {
			return err
		}
		return tx.Run(ctx, rows...)
	})
	if err == nil {
		j.recordProgress()
	}
	return wrapInternal(err)
}

func (j *job) readTasks(ctx context.Context) ([]*folderTask, error) {
	return db.All(ctx, j.options.DB, waitingFoldersQuery.With(j.ID), func(r db.Row) (*folderTask, error) {
		t := &folderTask{window: maxWindow, failureCount: map[uint32]int{}, unreadable: map[uint32]string{}}
		return t, r.Scan(&t.number, &t.name, &t.target, &t.subscribed, &t.uidValidity, &t.lastUID, &t.messages, &t.bytes)
	})
}

// listFolders returns the source's folders and namespaces. lost are folders whose names can't be
// requested or stored.
func (s *session) listFolders() (all []listedFolder, spaces namespaces, lost []Failure, err error) {
	defer s.conn.endCommand()
	if s.supports(imap.CapNamespace) {
		s.conn.beginCommand(smallResponse)
		data, err := s.Namespace().Wait()
		if err := s.wrapError(err); err != nil {
			if _, no := refusal(err); !no {
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
	extended := s.supports(imap.CapListExtended)
	if extended {
		options = &imap.ListOptions{ReturnSubscribed: true, ReturnSpecialUse: s.supports(imap.CapSpecialUse)}
	}
	s.conn.beginCommand(maxListResponse)
	cmd := s.List("", "*", options)
	for data := cmd.Next(); data != nil; data = cmd.Next() {
		if len(all) >= maxListed {
			_ = s.conn.Close()
			_ = cmd.Close()
			return nil, spaces, nil, permanentError{fmt.Sprintf("The source has more than %d folders.", maxListed)}
		}
		l := listedFolder{name: data.Mailbox, attrs: data.Attrs, subscribed: !extended}
		if data.Delim != 0 {
			l.delim = string(data.Delim)
		}
		l.subscribed = l.subscribed || l.hasAttr(imap.MailboxAttrSubscribed)
		if strings.Contains(l.name, "\x00") || len(l.name) > maxText {
			lost = append(lost, Failure{printable(l.name), 0, fmt.Sprintf("The name of this folder has more than %d bytes, or characters that can't be kept.", maxText)})
			continue
		}
		all = append(all, l)
	}
	for _, name := range s.conn.undecodableNames() {
		lost = append(lost, Failure{name, 0, "The source does not encode the name of this folder as IMAP says. Once it is renamed there, a new migration copies it."})
	}
	return all, spaces, lost, s.wrapError(cmd.Close())
}

// fetchStatus requests the number of messages in each folder.
func (s *session) fetchStatus(tasks []*folderTask) error {
	defer s.conn.endCommand()
	sizes := s.supports(imap.CapStatusSize)
	for some := range slices.Chunk(tasks, statusBatch) {
		s.conn.beginCommand(smallResponse)
		var asked []*imapclient.StatusCommand
		for _, t := range some {
			asked = append(asked, s.Status(t.name, &imap.StatusOptions{NumMessages: true, Size: sizes}))
		}
		for i, cmd := range asked {
			data, err := cmd.Wait()
			if err := s.wrapError(err); err != nil {
				if _, no := refusal(err); no {
					continue // its error appears when it is opened
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
