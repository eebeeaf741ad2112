// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/mailstead/mailstead/internal/server"
)

type domainCommand struct {
	Suspend domainSuspend `cmd:"" help:"Let nobody send from a domain, receive at it or sign in to its mailboxes; what it has is kept."`
	Resume  domainResume  `cmd:"" help:"End that."`
}

type domainSuspend struct {
	serviceFlags
	Name string `arg:"" help:"The domain, such as example.com."`
}

func (c *domainSuspend) Run() error { return c.suspendDomain(c.Name, true) }

type domainResume struct {
	serviceFlags
	Name string `arg:"" help:"The domain, such as example.com."`
}

func (c *domainResume) Run() error { return c.suspendDomain(c.Name, false) }

func (w serviceFlags) suspendDomain(name string, yes bool) error {
	return w.withAdminTools(func(ctx context.Context, d *server.AdminTools) error {
		if err := d.Domains.SetSuspended(ctx, name, yes); err != nil {
			return err
		}
		status := "suspended"
		if !yes {
			status = "active"
		}
		_, err := fmt.Printf("domain  %s is %s; running nodes know within seconds\n", name, status)
		return err
	})
}
