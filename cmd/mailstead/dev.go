// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"

	"github.com/mailstead/mailstead/internal/server"
)

type devCommand struct {
	Data     string `help:"Folder that keeps everything between starts." default:"${dev_data}" placeholder:"DIR"`
	PortBase int    `help:"Added to every standard port." default:"10000" placeholder:"N"`
	Relay    string `help:"Smart host for mail to outside, instead of capturing it." placeholder:"URL"`
	Resolver string `help:"DNS server for names outside the sandbox." placeholder:"HOST:PORT"`
	Database string `help:"\"sqlite\" in the data folder, or a postgres:// URL." default:"sqlite" placeholder:"URL"`
	LogLevel string `help:"debug, info, warn or error." default:"warn" enum:"debug,info,warn,error"`
}

func (c *devCommand) Run() error {
	config := server.DevConfig(c.Data)
	config.PortBase, config.Relay, config.Resolver = c.PortBase, c.Relay, c.Resolver
	config.Database, config.LogLevel = c.Database, c.LogLevel
	s, err := startServer(&config)
	if err != nil {
		return err
	}
	if err := s.Dev.Print(os.Stdout); err != nil {
		return err
	}
	return s.wait()
}
