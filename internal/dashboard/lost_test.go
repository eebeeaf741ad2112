// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

var (
	loseSent    = db.SQL(`DELETE FROM blob WHERE id = (SELECT blob FROM outbound_message WHERE id = $1)`)
	loseCaught  = db.SQL(`DELETE FROM blob WHERE id = (SELECT blob FROM captured_message WHERE id = $1)`)
	loseArrived = db.SQL(`DELETE FROM blob WHERE id = (SELECT blob FROM message WHERE id = $1)`)
)

// If the data of a message is lost, its page and its thread's page still show everything else.
func TestLostMessagePages(t *testing.T) {
	s := servertest.Start(t)
	b := browse(t, s)
	b.signIn(s)
	lose := func(q *db.Query, id string) {
		n, err := db.ParseID(id)
		if err != nil {
			t.Fatal(err)
		}
		dbtest.Exec(t, s.DB, q.With(n))
	}
	alice := s.Dev.Mailboxes[0]
	sent := callAPI(t, s, "POST", "/outbound/send", sendRequest(object{"thread_id": "order-42"}))
	id := sent["id"].(string)
	settles(t, s, id, "delivered")
	settles(t, s, callAPI(t, s, "POST", "/outbound/send", sendRequest(object{"thread_id": "order-42", "html": nil, "text": "It is still here."}))["id"].(string), "delivered")
	got := callAPI(t, s, "POST", "/sandbox/inbound", object{"from": "bob@outside.test", "to": []string{alice.Address}, "subject": "Re: Your order 42",
		"text": "When does it come?", "in_reply_to": sent["message_id"]})["recipients"].([]any)[0].(object)["id"].(string)
	lose(loseSent, id)
	lose(loseArrived, got)
	for _, to := range []string{"one@far.example", "two@far.example"} {
		settles(t, s, callAPI(t, s, "POST", "/outbound/send", sendRequest(object{"to": []string{to}}))["id"].(string), "delivered")
	}
	caught := callAPI(t, s, "GET", "/sandbox/outbox", nil)["data"].([]any)
	first := caught[0].(object)["id"].(string)
	lose(loseCaught, first)
	if list := callAPI(t, s, "GET", "/sandbox/outbox", nil)["data"].([]any); len(list) != 2 || list[0].(object)["subject"] != "" || list[1].(object)["subject"] == "" {
		t.Errorf("the outbox has %v", list)
	}
	for path, beside := range map[string]string{
		"/threads/order-42": "It is still here.", "/messages/" + id: "delivered@simulator.test", "/received/" + alice.ID.String() + "/" + got: alice.Address, "/sandbox/" + first: "two@far.example",
	} {
		b.open(path)
		b.reads("The service can’t read this message.")
		b.reads(beside)
		b.accessible()
	}
	b.open("/sandbox")
	b.reads("one@far.example")
	b.reads("two@far.example")
}
