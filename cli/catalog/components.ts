/** The components, and the commands that take the settings of one. */
import type { Flags } from '../args.ts'
import type { Command } from '../command.ts'
import { COMPONENTS, type ComponentName } from '../config/components.ts'
import { adminAddress, adminFlags, flag, force, json } from './flags.ts'

const NAMES = Object.keys(COMPONENTS) as ComponentName[]

export const SERVICES: readonly Command[] = [
  {
    name: 'server',
    about: 'Runs the tunnel server, which callers and tunnel clients connect to.',
    example:
      'sallyport server --domain tunnels.example.com --auth.jwks.file keys/jwks.json \\\n' +
      '    --control.tls.cert certs/server.pem --control.tls.key certs/server-key.pem',
    flags: {},
    component: 'server',
    load: async () => (await import('../commands/server.ts')).runServer,
  },
  {
    name: 'client',
    about:
      'Runs the tunnel client, which dials out to the server and forwards the requests that it receives. ' +
      'TARGET is short for --target: a port of this machine, host:port or a URL.',
    example:
      'sallyport client --server wss://connect.tunnels.example.com:8443 --ca certs/ca.pem \\\n' +
      '    --token.file token 3000',
    positionals: ['[TARGET]'],
    flags: {},
    component: 'client',
    load: async () => (await import('../commands/client.ts')).runClient,
  },
  {
    name: 'router',
    about: 'Runs the request router as a service of its own, behind an ingress or a tunnel client.',
    example: 'sallyport router --routes routes.yaml --trusted-proxies 127.0.0.1',
    flags: {},
    component: 'router',
    load: async () => (await import('../commands/router.ts')).runRouter,
  },
]

const CONFIG_ACTIONS = {
  validate: 'Checks the configuration and the files that it names, without starting anything.',
  print: 'Prints each value and its source. Secrets are masked.',
  schema: 'Prints the JSON Schema of the configuration file.',
} as const

function configCommand(action: keyof typeof CONFIG_ACTIONS, component: ComponentName): Command {
  return {
    name: `config ${action} ${component}`,
    about: CONFIG_ACTIONS[action],
    example: `sallyport config ${action} ${component}${action === 'schema' ? '' : ` --config ${component}.yaml`}`,
    flags: {},
    component,
    load: async () => {
      const commands = await import('../commands/config.ts')
      return (args, io) => commands[action](component, args, io)
    },
  }
}

const STOP_FLAG: Flags = {
  'termination-grace': flag(
    'TIME',
    'Time that Kubernetes or systemd allows for a stop. The check reports whether a drain fits into it.',
  ),
}

/** Flags of `check` besides `--json`. */
const CHECK_FLAGS: Readonly<Record<ComponentName, Flags>> = {
  client: { deep: flag('', 'Also measures how long the connection to the server may be idle. Takes 10 s longer.') },
  router: {},
  server: {
    outside: flag('', 'Also calls the public name, while listening in place of the server, which must not be running.'),
    'outside.ca': flag('FILE', "Authorities (PEM) to check the public name with. Default: Node's own."),
    deep: flag('', 'With --outside: also runs the checks that take a minute.'),
  },
}

function checkCommand(component: ComponentName): Command {
  return {
    name: `check ${component}`,
    about: `Checks what the ${component} needs, step by step, and reports what is missing. Changes nothing. Exits with code 5 if something fails.`,
    example: `sallyport check ${component} --config ${component}.yaml`,
    ...(component === 'client' ? { positionals: ['[TARGET]'] } : {}),
    flags: { ...json, ...STOP_FLAG, ...CHECK_FLAGS[component] },
    component,
    load: async () => {
      const { check } = await import('../commands/check.ts')
      return (args, io) => check(component, args, io)
    },
  }
}

const archiveFlags: Flags = { out: flag('FILE', 'The archive (ZIP) to write. Required.'), ...force }

export const DIAGS: readonly Command[] = [
  {
    name: 'diag',
    about:
      'Writes an archive for a bug report: configuration, check, status, metrics, the end of the log, limits and versions of the components on this machine, without secrets. For a component that is not running, use `diag client` with its flags.',
    example: 'sallyport diag --out report.zip',
    flags: {
      ...archiveFlags,
      profile: flag('SECONDS', 'Adds a CPU profile of this many seconds (at most 30).'),
      ...adminAddress,
    },
    load: async () => (await import('../commands/diag.ts')).diag,
  },
  ...NAMES.map(
    (component): Command => ({
      name: `diag ${component}`,
      about: `As \`diag\`, for a ${component} that is not running. Takes its flags.`,
      example: `sallyport diag ${component} --out report.zip --config ${component}.yaml`,
      ...(component === 'client' ? { positionals: ['[TARGET]'] } : {}),
      flags: {
        ...archiveFlags,
        'log.file': flag('FILE|-', 'Log file, or `-` for stdin. Its last 1 MiB is added, redacted.'),
      },
      component,
      load: async () => {
        const { diagOf } = await import('../commands/diag.ts')
        return (args, io) => diagOf(component, args, io)
      },
    }),
  ),
]

export const CHECK_COMMANDS: readonly Command[] = [
  ...NAMES.map(checkCommand),
  {
    name: 'check',
    about:
      'With --via, asks the connected clients of a runtime whether the targets of their routes accept connections. `check client`, `check server` and `check router` check what a component needs.',
    example: 'sallyport check --via demo',
    flags: { via: flag('RUNTIME', 'The runtime whose clients are asked. Required.'), ...adminFlags },
    load: async () => (await import('../commands/check.ts')).checkVia,
  },
]

export const CONFIGS: readonly Command[] = (Object.keys(CONFIG_ACTIONS) as (keyof typeof CONFIG_ACTIONS)[]).flatMap(
  action => NAMES.map(component => configCommand(action, component)),
)
