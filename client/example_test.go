// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/mailstead/mailstead/client"
)

func Example() {
	c, err := client.New(os.Getenv("MAILSTEAD_URL"), os.Getenv("MAILSTEAD_API_KEY"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	sent, err := c.Send(ctx, &client.Send{
		FromEmail: "alice@demo.test", FromName: "Example Shop",
		To:       []string{"Bob <bob@demo.test>"},
		Subject:  "Your order",
		Text:     "Thank you!",
		Metadata: map[string]any{"order": 42},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(sent.Status, sent.Recipients[0].Email, string(sent.Metadata))
	// Output: queued bob@demo.test {"order":42}
}

// Attachments are read while they are sent. Files, and readers that can seek, are read again if the
// request must be repeated.
func ExampleClient_Send_attachments() {
	c, err := client.New(os.Getenv("MAILSTEAD_URL"), os.Getenv("MAILSTEAD_API_KEY"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.CloseIdleConnections()

	sent, err := c.Send(context.Background(), &client.Send{
		FromEmail: "alice@demo.test", To: []string{"bob@demo.test"}, Subject: "Report", HTML: `<p>See below.</p><img src="cid:logo">`,
		Attachments: []client.Attachment{
			client.File("example_test.go"),
			client.Bytes("figures.csv", []byte("a,b\n1,2\n")),
			{Filename: "logo.svg", ContentID: "logo", Content: strings.NewReader("<svg/>")},
		},
		// This order is confirmed once, even if the program is restarted.
		IdempotencyKey: "order-42-confirmed",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(sent.Status)
	// Output: queued
}

// The error lists all invalid fields, with stable codes.
func ExampleProblem() {
	c, err := client.New(os.Getenv("MAILSTEAD_URL"), os.Getenv("MAILSTEAD_API_KEY"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.CloseIdleConnections()

	_, err = c.Send(context.Background(), &client.Send{FromEmail: "alice@demo.test", To: []string{"bob"}, Subject: "Hi"})
	var p *client.Problem
	if errors.Is(err, client.ErrInvalid) && errors.As(err, &p) {
		for _, f := range p.Errors {
			fmt.Println(f.Field, f.Code)
		}
	}
	// Output:
	// to[0] invalid_address
	// text text_or_html_required
}

// A list is iterated over like a slice; pages are fetched on demand.
func ExampleClient_Mailboxes() {
	c, err := client.New(os.Getenv("MAILSTEAD_URL"), os.Getenv("MAILSTEAD_API_KEY"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.CloseIdleConnections()

	for m, err := range c.Mailboxes(context.Background(), client.MailboxFilter{}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(m.Address)
	}
	// Output:
	// bob@demo.test
	// alice@demo.test
}
