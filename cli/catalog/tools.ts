/** Tools for developers, and what belongs to no component. */
import { type Command, commandsOf } from '../command.ts'
import { flag, force, json, listFlag, presetFlags } from './flags.ts'

export const ROUTE: Command = {
  name: 'route test',
  about: 'Shows which route matches a URL, the path it is rewritten to and its target, or why no route matches.',
  example: 'sallyport route test https://demo.tunnels.example.com/webhooks/argo-events/github --routes routes.yaml',
  positionals: ['URL'],
  flags: {
    routes: flag('FILE', 'The route table (YAML).'),
    config: flag('FILE', 'YAML file with the settings of a client or router, which names its routes.'),
    preset: flag('gitops-runtime', 'A built-in route table, with the same --preset.* flags as the client.'),
    method: flag('METHOD', 'Default GET.'),
    header: listFlag('"NAME: VALUE"', 'A header field of the request; may repeat.'),
    caller: flag('ADDRESS', 'Address of the caller, to check against allow.callers.'),
    ...json,
    ...presetFlags(),
  },
  load: async () => (await import('../commands/route.ts')).routeTest,
}

export const WEBHOOK: Command = {
  name: 'webhook send',
  about: 'Sends a webhook, signed the way its sender would sign it, and prints the answer.',
  example: 'sallyport webhook send --scheme github --secret-file secret https://demo.tunnels.example.com/webhooks/a/b',
  positionals: ['URL'],
  flags: {
    scheme: flag(
      'NAME',
      'github (default), gitea, forgejo, bitbucket, gitlab, gitlab-signing, standard-webhooks, slack, stripe, hmac or bearer.',
    ),
    'secret-file': flag('FILE', 'File with the shared secret. A trailing line break is ignored.'),
    body: flag('FILE', 'File with the body, sent byte for byte. Default: a small JSON object.'),
    id: flag('ID', 'Id of the delivery, for senders that use one. Default: random.'),
    header: listFlag('"NAME: VALUE"', 'Adds or replaces a header field; may repeat.'),
    'hmac.header': flag('NAME', 'For hmac: header field that carries the signature.'),
    'hmac.prefix': flag('TEXT', 'For hmac: prefix of the digest, such as sha256=.'),
    'hmac.encoding': flag('hex|base64', 'For hmac: encoding of the digest; default hex.'),
    'hmac.hash': flag('sha256|sha512', 'For hmac: hash function; default sha256.'),
    ca: flag('FILE', "Authorities (PEM) to check the URL with. Default: Node's own."),
    ...json,
  },
  load: async () => (await import('../commands/webhook.ts')).webhookSend,
}

export const TOOLS: readonly Command[] = [
  {
    name: 'migrate frp',
    about: "Converts frp's frpc.toml to client configurations and reports what it cannot convert.",
    example: 'sallyport migrate frp frpc.toml --domain tunnels.example.com --out sallyport',
    positionals: ['FILE'],
    flags: {
      domain: flag(
        'NAME[:PORT]',
        'Domain of the runtimes: the --domain of the server. Port that clients dial: default 443.',
      ),
      out: flag('DIR', 'Where the files go: RUNTIME.yaml and RUNTIME-routes.yaml for each runtime.'),
      ...force,
    },
    load: async () => (await import('../commands/migrate.ts')).migrateFromFrp,
  },
  {
    name: 'load-test',
    about:
      'Puts a steady load on a running server and client and writes a report. With --direct, it shows the overhead.',
    example: 'sallyport load-test https://demo.tunnels.example.com --direct http://127.0.0.1:3000',
    positionals: ['[URL]'],
    flags: {
      direct: flag('URL', 'The same upstream without the tunnel, measured alternately with it.'),
      header: listFlag('"NAME: VALUE"', 'A header field of each request; may repeat.'),
      ca: flag('FILE', "Authorities (PEM) to check the URLs with. Default: Node's own."),
      connections: flag('N', 'Connections; default 10.'),
      rate: flag('N|max', 'Requests per second over all connections; default 50. max: closed loops with autocannon.'),
      duration: flag('TIME', 'Duration of each scenario on each URL; default 30s.'),
      bailout: flag('PERCENT', 'Stops when this share of answers is wrong; default 5%.'),
      only: listFlag('NAME', 'small, webhook, bulk, websocket or sse; may repeat.'),
      out: flag('DIR', 'Where report.html and report.json go; default sallyport-load-test.'),
      yes: flag('', 'Allows more than 200 requests/s or 60 s.'),
      serve: flag('HOST:PORT', 'Runs the upstream that all scenarios need, and sends no load.'),
    },
    load: async () => (await import('../commands/load-test.ts')).runLoadTest,
  },
  {
    name: 'demo',
    about:
      'Starts everything on loopback with fresh keys and prints commands to try. With --check, it runs them itself.',
    example: 'sallyport demo --check',
    flags: { check: flag('', 'Sends one request of each kind of traffic, prints pass or fail, and exits.') },
    raw: true,
    load: async () => (await import('../commands/demo.ts')).runDemo,
  },
  {
    name: 'version',
    about: 'Prints the version. With --json, also the versions of Node, OpenSSL and the platform, for a bug report.',
    example: 'sallyport version --json',
    flags: json,
    load: async () => (await import('../commands/version.ts')).version,
  },
]

const completion = (shell: string, file: string) => ({
  name: `completion ${shell}`,
  about: `Prints the script that completes commands and flags in ${shell}.`,
  example: `sallyport completion ${shell} > ${file}`,
  flags: {},
})

export const COMPLETIONS: readonly Command[] = commandsOf(() => import('../commands/completion.ts'), {
  completionBash: completion('bash', '~/.local/share/bash-completion/completions/sallyport'),
  completionZsh: completion('zsh', '~/.zfunc/_sallyport'),
  completionFish: completion('fish', '~/.config/fish/completions/sallyport.fish'),
})
