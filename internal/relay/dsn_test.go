// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"context"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/smtpclient"
)

// told sends a message whose sender wants a success DSN, and returns the queue's notices.
func (h *fixture) told() []queue.Notice {
	h.t.Helper()
	m := h.newMail(func(m *queue.OutboundMessage) { m.Ret, m.EnvID = "HDRS", "order 7" })
	p := h.queue.Reserve(queue.Message{MessageInfo: m.MessageInfo, ID: m.ID, ExpiresAt: h.clock().Add(72 * time.Hour), NotifySender: true}, []queue.Recipient{
		{Address: "bob@d.test", Kind: "envelope", Destination: "d.test", Notify: smtpclient.NotifySuccess | smtpclient.NotifyDelay, Original: "rfc822;b+x@d.test"},
		{Address: "eve@d.test", Kind: "envelope", Destination: "d.test"},
	})
	if err := h.db.Write(context.Background(), m.ID, &db.Mutation{Apply: p.AddStatements, AfterCommit: p.Dispatch}); err != nil {
		h.t.Fatal(err)
	}
	h.await(m.ID)
	all, _, _, err := h.queue.Notices(context.Background(), m.ID)
	if err != nil {
		h.t.Fatal(err)
	}
	return all
}

// A host with DSN gets the sender's options and sends the DSNs itself. For a host without DSN we
// report that the mail was relayed.
func TestDSN(t *testing.T) {
	s := &sink{ext: []string{"PIPELINING", "8BITMIME", "DSN"}}
	h := oneHost(t, s)
	if all := h.told(); len(all) != 0 {
		t.Errorf("notices %+v", all)
	}
	got := s.mail()
	if len(got) != 1 || got[0].from != "FROM:<a@from.test> RET=HDRS ENVID=order+207" ||
		got[0].to != "<bob@d.test> NOTIFY=SUCCESS,DELAY ORCPT=rfc822;b+2Bx@d.test<eve@d.test>" {
		t.Errorf("received %+v", got)
	}
	s = &sink{ext: []string{"PIPELINING", "8BITMIME"}}
	h = oneHost(t, s)
	all := h.told()
	if len(all) != 1 || all[0].Action != queue.ActionRelayed || all[0].Recipient != "bob@d.test" || all[0].Original != "rfc822;b+x@d.test" || all[0].Remote != "mx.d.test" {
		t.Errorf("notices %+v", all)
	}
	if got := s.mail(); len(got) != 1 || got[0].from != "FROM:<a@from.test>" || got[0].to != "<bob@d.test><eve@d.test>" {
		t.Errorf("received %+v", got)
	}
}
