// Loads each Compose file given as `docker compose config` does: the published schema, interpolation, and references between
// services, volumes and configs. Prints the resolved project as JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/compose-spec/compose-go/v2/cli"
)

func main() {
	options, err := cli.NewProjectOptions(
		os.Args[1:], cli.WithOsEnv, cli.WithEnvFiles(), cli.WithDotEnv, cli.WithDefaultProfiles(),
	)
	if err != nil {
		fail(err)
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		fail(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(project); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
