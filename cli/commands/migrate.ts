import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parse as parseYaml, stringify } from 'yaml'
import { createRouter, type RouteTable } from '../../router/index.ts'
import type { Run } from '../command.ts'
import { hostName } from '../config/kinds.ts'
import { configurationError, EXIT, fileProblem, usageError } from '../failure.ts'
import { migrateFrp } from '../migrate/frp.ts'
import { readAs, requiredFlag } from '../options.ts'
import { writeOutput } from '../output-files.ts'
import { plainText } from '../plain-text.ts'

const MAX_BYTES = 1_048_576
/** No anchors, since people will edit the result. */
const PLAIN = { aliasDuplicateObjects: false }

export const migrateFromFrp: Run = async (args, io) => {
  const [path = ''] = args.positionals
  const [, name = '', port = '443'] = /^(.*?)(?::(\d{1,5}))?$/s.exec(requiredFlag(args, 'domain'))!
  const domain = readAs(hostName, 'domain', name)
  if (Number(port) < 1 || Number(port) > 65_535) throw usageError(`--domain: ${port} is not a port`)
  const out = requiredFlag(args, 'out')
  const { runtimes, notes } = migrateFrp(
    await readConfiguration(path),
    domain,
    `wss://connect.${domain}:${Number(port)}`,
  )
  for (const note of notes) io.note(plainText(note))
  if (runtimes.length === 0)
    throw configurationError(`${path}: none of its proxies can be converted; nothing was written`)
  for (const { name, routes } of runtimes) checkRoutes(name, routes)
  // The files may have a proxy password or a secret header, so they get the permissions of secrets.
  const files = runtimes.flatMap(({ name, client, routes }) => [
    { path: join(out, `${name}.yaml`), text: stringify(client, PLAIN), secret: true },
    { path: join(out, `${name}-routes.yaml`), text: stringify(routes, PLAIN), secret: true },
  ])
  await writeOutput(files, args, io)
  io.note(
    '\nNext, in that folder, for each runtime. If the private.jwk of `sallyport keys create` is elsewhere, give its path:',
  )
  for (const { name } of runtimes) {
    io.note(`  sallyport token create --key private.jwk --runtime ${name} --ttl 90d --out ${name}.token`)
    io.note(`  sallyport client --config ${name}.yaml`)
  }
  io.note(
    'If the server has a certificate of `sallyport certs init`, first set `ca: PATH/ca.pem` in each RUNTIME.yaml.',
  )
  return EXIT.ok
}

/** Reads TOML, YAML or JSON, like frp itself. frp's older INI format is not supported. */
async function readConfiguration(path: string): Promise<unknown> {
  let text: string
  try {
    text = readFileSync(path, 'utf8')
  } catch (error) {
    throw configurationError(`cannot read ${path}: ${fileProblem(error)}`, error)
  }
  if (text.length > MAX_BYTES) throw configurationError(`${path} is larger than 1 MiB: it is not an frp configuration`)
  // frp itself looks for this section.
  if (path.endsWith('.ini') || /^\s*\[common\]/m.test(text))
    throw configurationError(
      `${path}: frp's INI format is not supported; first write the file in TOML, which frp reads from version 0.52 on`,
    )
  const parse = /\.(ya?ml|json)$/.test(path)
    ? (yaml: string) => parseYaml(yaml, { logLevel: 'error' })
    : await tomlParser()
  try {
    return parse(text)
  } catch (error) {
    const [problem = ''] = (error as Error).message.split('\n')
    throw configurationError(`${path}: ${plainText(problem)} (an frp template must be rendered first)`, error)
  }
}

async function tomlParser(): Promise<(text: string) => unknown> {
  try {
    return (await import('smol-toml')).parse
  } catch (error) {
    throw configurationError(
      'TOML needs the optional package smol-toml, which is not installed: npm install smol-toml',
      error,
    )
  }
}

/** Checks that a client would accept the generated routes. */
function checkRoutes(runtime: string, routes: object): void {
  try {
    createRouter({ routes: routes as RouteTable }).close()
  } catch (error) {
    throw configurationError(
      `the routes of ${runtime} would not be valid, so nothing was written: ${(error as Error).message}`,
      error,
    )
  }
}
