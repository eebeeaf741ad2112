// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/mailstead/mailstead/client"
)

// apiFlags are the flags that name the service for customer commands.
type apiFlags struct {
	URL  string `name:"url" help:"The service; that of mailstead dev by default." placeholder:"URL"`
	Key  string `env:"MAILSTEAD_API_KEY" help:"An API key with ${scopes}; that of mailstead dev by default." placeholder:"KEY"`
	Data string `help:"Data folder of mailstead dev." default:"${dev_data}" placeholder:"DIR"`
}

// openMailbox connects to the service and finds a mailbox by its address.
func (a apiFlags) openMailbox(ctx context.Context, address string) (api *client.Client, id string, err error) {
	if err := a.loadDevSettings(); err != nil {
		return nil, "", err
	}
	if api, err = client.New(a.URL, a.Key); err != nil {
		return nil, "", err
	}
	id, err = findMailbox(ctx, api, address)
	return api, id, err
}

// loadDevSettings sets missing values from a sandbox's dev.json.
func (a *apiFlags) loadDevSettings() error {
	if a.URL != "" && a.Key != "" {
		return nil
	}
	if a.URL != "" {
		return errors.New("--key is missing, or $MAILSTEAD_API_KEY")
	}
	var dev struct {
		BaseURL string `json:"base_url"`
		APIKey  string `json:"api_key"`
	}
	text, err := os.ReadFile(filepath.Join(a.Data, "dev.json"))
	if err == nil {
		err = json.Unmarshal(text, &dev)
	}
	if err != nil {
		return fmt.Errorf("start `mailstead dev`, or give --url and --key: %w", err)
	}
	a.URL, a.Key = dev.BaseURL, cmp.Or(a.Key, dev.APIKey)
	return nil
}

// findMailbox finds a mailbox by its address.
func findMailbox(ctx context.Context, api *client.Client, address string) (id string, err error) {
	for m, err := range api.Mailboxes(ctx, client.MailboxFilter{}) {
		if err != nil {
			return "", err
		}
		if strings.EqualFold(m.Address, address) {
			return m.ID, nil
		}
	}
	return "", errors.New("--mailbox: there is no mailbox with this address")
}
