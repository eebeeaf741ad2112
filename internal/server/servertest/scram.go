// SPDX-License-Identifier: Apache-2.0

package servertest

import (
	"errors"

	"github.com/xdg-go/scram"

	"github.com/mailstead/mailstead/internal/server"
)

// SCRAM sets the service's --scram: on, learn or off.
func SCRAM(how string) Option { return func(c *server.Config) { c.SCRAM = how } }

// SCRAMClient signs in by SCRAM-SHA-256. It implements sasl.Client of go-sasl.
type SCRAMClient struct {
	User, Password string
	conversation   *scram.ClientConversation
}

// Start returns the mechanism and the first message.
func (c *SCRAMClient) Start() (mechanism string, first []byte, err error) {
	client, err := scram.SHA256.NewClient(c.User, c.Password, "")
	if err != nil {
		return "", nil, err
	}
	c.conversation = client.NewConversation()
	first, err = c.Next(nil)
	return "SCRAM-SHA-256", first, err
}

// Next answers a challenge. It returns an error if the server does not prove that it knows the
// password.
func (c *SCRAMClient) Next(challenge []byte) ([]byte, error) {
	said, err := c.conversation.Step(string(challenge))
	if err == nil && c.conversation.Done() && !c.conversation.Valid() {
		err = errors.New("the server has not proved that it knows the password")
	}
	return []byte(said), err
}
