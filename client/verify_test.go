// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/client"
)

// The example of the Standard Webhooks specification.
const (
	standardSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	standardBody   = `{"test": 2432232314}`
	standardMAC    = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
)

func standardHeader() http.Header {
	h := http.Header{}
	h.Set("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek")
	h.Set("webhook-timestamp", "1614265330")
	h.Set("webhook-signature", standardMAC)
	return h
}

func TestVerifyWebhook(t *testing.T) {
	at := time.Unix(1614265330, 0)
	for what, k := range map[string]struct {
		change func(h http.Header)
		body   string
		secret string
		after  time.Duration
		good   bool
	}{
		"as it came":           {good: true},
		"a late one":           {after: client.WebhookTolerance, good: true},
		"too late":             {after: client.WebhookTolerance + time.Second},
		"an early one":         {after: -client.WebhookTolerance, good: true},
		"too early":            {after: -client.WebhookTolerance - time.Second},
		"with another's first": {change: func(h http.Header) { h.Set("webhook-signature", "v1,AAAA v2,x "+standardMAC) }, good: true},
		"another's only":       {change: func(h http.Header) { h.Set("webhook-signature", "v1,AAAA") }},
		"of another version":   {change: func(h http.Header) { h.Set("webhook-signature", strings.Replace(standardMAC, "v1", "v2", 1)) }},
		"without a signature":  {change: func(h http.Header) { h.Del("webhook-signature") }},
		"without a time":       {change: func(h http.Header) { h.Del("webhook-timestamp") }},
		"of another time":      {change: func(h http.Header) { h.Set("webhook-timestamp", "1614265331") }},
		"without an id":        {change: func(h http.Header) { h.Del("webhook-id") }},
		"of another id":        {change: func(h http.Header) { h.Set("webhook-id", "msg") }},
		"another body":         {body: `{"test": 2432232315}`},
		"the JSON of the body": {body: `{"test":2432232314}`},
		"another secret":       {secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSx"},
	} {
		h := standardHeader()
		if k.change != nil {
			k.change(h)
		}
		body, secret := standardBody, standardSecret
		if k.body != "" {
			body = k.body
		}
		if k.secret != "" {
			secret = k.secret
		}
		e, err := client.VerifyWebhookAt(h, []byte(body), secret, at.Add(k.after))
		if k.good && (err != nil || e == nil) || !k.good && !errors.Is(err, client.ErrNotAuthentic) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, secret := range []string{"", "whsec_", "whsec_?"} {
		if _, err := client.VerifyWebhook(standardHeader(), []byte(standardBody), secret); err == nil || errors.Is(err, client.ErrNotAuthentic) {
			t.Errorf("the secret %q: %v", secret, err)
		}
	}
}

// RFC 4231 §4.3, test case 2.
func TestWebhookSigned(t *testing.T) {
	const key, body = "Jefe", "what do ya want for nothing?"
	h := http.Header{"X-Service-Signature": {"sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"}}
	if !client.WebhookSigned(h, []byte(body), key) {
		t.Error("what is signed is refused")
	}
	if client.WebhookSigned(h, []byte(body+"?"), key) || client.WebhookSigned(h, []byte(body), "jefe") || client.WebhookSigned(http.Header{}, []byte(body), key) {
		t.Error("what is not signed is taken")
	}
	if client.WebhookSigned(http.Header{"X-Service-Signature": {"sha256=b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad"}}, nil, "") {
		t.Error("no secret is taken for one")
	}
}

func TestWebhookHandler(t *testing.T) {
	var got []*client.Event
	var refuse error
	h := client.WebhookHandler(standardSecret, func(_ context.Context, e *client.Event) error {
		got = append(got, e)
		return refuse
	})
	ask := func(method, body string, header http.Header) int {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(method, "/hook", bytes.NewReader([]byte(body)))
		for name, values := range header {
			r.Header[name] = values
		}
		h.ServeHTTP(w, r)
		return w.Code
	}
	body := `{"id":"x","type":"bounce","data":{}}`
	header := signed(standardSecret, "x", body)
	for _, k := range []struct {
		what, method, body string
		header             http.Header
		refuse             error
		want, handled      int
	}{
		{"an event", "POST", body, header, nil, 204, 1},
		{"one that is not handled", "POST", body, header, client.ErrNotAuthentic, 500, 1},
		{"one changed by a byte", "POST", strings.Replace(body, "x", "y", 1), header, nil, 401, 0},
		{"a GET", "GET", "", nil, nil, 405, 0},
		{"a large body", "POST", strings.Repeat("x", 5<<20), header, nil, 400, 0},
	} {
		got, refuse = nil, k.refuse
		if status := ask(k.method, k.body, k.header); status != k.want || len(got) != k.handled {
			t.Errorf("%s: %d, handled %d times", k.what, status, len(got))
		}
	}
}

// Remember event ids: an event may arrive twice.
func ExampleWebhookHandler() {
	http.Handle("/hook", client.WebhookHandler(os.Getenv("WEBHOOK_SECRET"), func(_ context.Context, e *client.Event) error {
		var b client.BounceData
		if e.Type != "bounce" {
			return nil
		}
		if err := e.Decode(&b); err != nil {
			return err
		}
		fmt.Println(e.ID, b.Recipient, b.Type)
		return nil
	}))
}

// signed returns the header of a webhook request sent now.
func signed(secret, id, body string) http.Header {
	now := strconv.FormatInt(time.Now().Unix(), 10)
	key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + now + "." + body))
	h := http.Header{}
	h.Set("webhook-id", id)
	h.Set("webhook-timestamp", now)
	h.Set("webhook-signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	return h
}
