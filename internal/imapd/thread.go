// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"github.com/mailstead/mailstead/internal/folder/search"
	"github.com/mailstead/mailstead/internal/imapd/wire"
)

// thread handles THREAD (RFC 5256).
func (s *session) thread(cmd *wire.Thread) (wire.Code, error) {
	uids, _, found := s.runSearch(&cmd.Key)
	if !hasResult(found) {
		return "", found
	}
	arrange := search.ThreadByReferences
	if cmd.Algorithm == "ORDEREDSUBJECT" {
		arrange = search.ThreadByOrderedSubject
	}
	threads, err := arrange(s.ctx(), s.view, uids)
	if err != nil {
		return "", err
	}
	out := s.w.Thread()
	threads.Walk(out.Open, out.Close, func(i int) {
		if cmd.UID {
			out.Number(uids[i])
		} else {
			out.Number(s.view.Seq(uids[i]))
		}
	})
	out.End()
	return "", found
}
