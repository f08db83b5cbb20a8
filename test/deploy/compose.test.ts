/**
 * `deploy/compose`: a file that Compose accepts, parts with no more rights than they need, and the README's steps up to
 * an answer.
 */
import { execFile, execFileSync } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { parse } from 'yaml'
import { COMPONENTS } from '../../cli/config/components.ts'
import { environmentName, type Settings } from '../../cli/config/setting.ts'
import { PUBLIC_URL } from '../../server/public-url.ts'
import { GO_BUILD_MS, goBuild } from '../support/go.ts'
import { needs } from '../support/needs.ts'

interface Service {
  readonly build?: object
  readonly command: readonly string[]
  readonly entrypoint?: readonly string[]
  readonly environment?: Readonly<Record<string, string>>
  readonly network_mode?: string
  readonly networks?: readonly string[]
  readonly profiles?: readonly string[]
  readonly user?: string
  readonly volumes?: readonly { readonly type: string; readonly source: string; readonly target: string }[]
}

interface Project {
  readonly services: Readonly<Record<string, Service>>
  readonly networks: Readonly<Record<string, { readonly ipam?: { readonly config: readonly object[] } } | null>>
}

const README = readFileSync('deploy/compose/README.md', 'utf8')
const written: Project = parse(readFileSync('deploy/compose/compose.yaml', 'utf8'), { merge: true })
const services = Object.entries(written.services)

describe('as written', () => {
  test.each(services)('%s has a read-only root and no capabilities', (_name, service) => {
    expect(service).toMatchObject({ read_only: true, cap_drop: ['ALL'], security_opt: ['no-new-privileges:true'] })
  })

  test('K1 the router trusts a network that no service is in', () => {
    const inTunnel = services.filter(([, { networks = [] }]) => networks.includes('tunnel')).map(([name]) => name)
    expect(inTunnel).toEqual(['sallyport-server', 'sallyport-client', 'sallyport-router', 'prometheus'])
    expect(
      services.filter(([, { networks, network_mode }]) => networks === undefined && network_mode !== 'none'),
    ).toEqual([])
    expect(written.networks.tunnel!.ipam!.config).toEqual([
      { subnet: written.services['sallyport-router']!.environment!.SALLYPORT_TRUSTED_PROXIES },
    ])
  })

  test('the signing key is where there is no network', () => {
    const holders = services.filter(([, { volumes = [] }]) =>
      volumes.some(({ source }) => source === './state' || source === './state/authority'),
    )
    expect(holders.map(([name, { network_mode }]) => [name, network_mode])).toEqual([
      ['setup', 'none'],
      ['sallyport-token', 'none'],
    ])
  })

  test.each(Object.entries(COMPONENTS))('the settings of the %s are ones that it knows', (name, settings: Settings) => {
    const known = Object.keys(settings).map(environmentName)
    const given = Object.keys(written.services[`sallyport-${name}`]!.environment!)
    expect(given.filter(variable => !known.includes(variable))).toEqual([])
  })

  test('Prometheus and Grafana are given files that exist', () => {
    const { scrape_configs } = parse(readFileSync('deploy/monitoring/prometheus.yaml', 'utf8')) as {
      scrape_configs: { job_name: string; static_configs: { targets: string[] }[] }[]
    }
    for (const { job_name, static_configs } of scrape_configs) {
      expect(static_configs.flatMap(({ targets }) => targets)).toEqual([`${job_name}:8086`])
      expect(written.services[job_name]!.environment!.SALLYPORT_HEALTH_LISTEN).toBe('0.0.0.0:8086')
    }
    const { datasources } = parse(readFileSync('deploy/compose/grafana/datasources/prometheus.yaml', 'utf8'))
    expect(datasources).toMatchObject([{ type: 'prometheus', url: 'http://prometheus:9090' }])
  })
})

describe.runIf(needs('new-go'))('as Compose loads it', () => {
  const folder = mkdtempSync(join(tmpdir(), 'sallyport-compose-'))
  const here = join(folder, 'deploy/compose')
  const load = (env: Record<string, string> = {}): Project =>
    JSON.parse(
      execFileSync(join(folder, 'load'), ['compose.yaml'], {
        cwd: here,
        env: { ...env, COMPOSE_PROFILES: 'setup' },
        encoding: 'utf8',
        stdio: 'pipe',
      }),
      // A container does not get a variable without a value.
      (_name, value) => value ?? undefined,
    )

  beforeAll(async () => {
    cpSync('deploy', join(folder, 'deploy'), { recursive: true })
    // As in a checkout that only its owner can read.
    execFileSync('chmod', ['-R', 'go=', join(folder, 'deploy')])
    mkdirSync(join(folder, 'fake'))
    writeFileSync(join(folder, 'fake/node'), '#!/bin/sh\necho "$SALLYPORT_PUBLIC_URL $*"\n', { mode: 0o755 })
    await goBuild(resolve('test/deploy/compose'), join(folder, 'load'))
  }, GO_BUILD_MS)

  afterAll(() => rmSync(folder, { recursive: true, force: true }))

  test('it reports what is missing, and then loads the file', { tags: ['slow'] }, () => {
    expect(() => load()).toThrow('README.md says how to write .env')
    const loaded = load({ SALLYPORT_USER: '1000:1000', SALLYPORT_PUBLISH: '443' }).services
    expect(Object.keys(loaded).sort()).toEqual(services.map(([name]) => name).sort())
    for (const [, { build, user }] of Object.entries(loaded)) expect(user).toBe(build ? '1000:1000' : undefined)
    expect(loaded['sallyport-server']).toMatchObject({ ports: [{ target: 8443, published: '443' }] })
  })

  test.each([...README.matchAll(/`(SALLYPORT_\w+)=(\S+)`/g)].map(([, name, value]) => [name!, value!]))(
    'the line %s=%s of .env has an effect',
    { tags: ['slow'] },
    (name, value) => {
      const given = { SALLYPORT_USER: '1000:1000' }
      expect(load({ ...given, [name]: value })).not.toEqual(load(given))
    },
  )

  test.each([
    [{}, 'https://*.tunnels.localhost:8443'],
    [{ SALLYPORT_DOMAIN: 'a.example.com', SALLYPORT_PUBLISH: '443' }, 'https://*.a.example.com'],
    [
      { SALLYPORT_DOMAIN: 'a.example.com,b.example.com', SALLYPORT_PUBLISH: '[::]:9443' },
      'https://*.a.example.com:9443',
    ],
    [{ SALLYPORT_PUBLISH: '127.0.0.1:443' }, 'https://*.tunnels.localhost'],
    [{ SALLYPORT_PUBLISH: '9443', SALLYPORT_PUBLIC_URL: 'https://*.b.example.com' }, 'https://*.b.example.com'],
  ])('clients are told the URL that callers use: %j', (env, url) => {
    const server = load({ SALLYPORT_USER: '1000:1000', ...env }).services['sallyport-server']!
    const [shell, ...words] = [...server.entrypoint!, ...server.command].map(word => word.replaceAll('$$', '$'))
    const PATH = `${join(folder, 'fake')}:${process.env.PATH}`
    expect(execFileSync(shell!, words, { env: { ...server.environment, PATH }, encoding: 'utf8' })).toBe(
      `${url} /app/bin/sallyport.js server\n`,
    )
    expect(url).toMatch(PUBLIC_URL)
  })

  // Each service as a process, at its own address in a network that nobody else is in.
  test.runIf(needs('netns', 'curl', 'prometheus'))(
    "the README's steps lead to an answer, and everything is scraped",
    {
      tags: ['slow'],
    },
    async () => {
      const commands = [...README.matchAll(/^ {4}(.*)$/gm)].map(([, line]) => line!)
      const [env, mkdir, chmod, , setup, , curl] = commands
      expect([setup, curl]).toEqual([expect.stringMatching(/run --rm setup$/), expect.stringMatching(/^curl /)])
      execFileSync('/bin/sh', ['-ec', `${env}\n${mkdir}\n${chmod}`], { cwd: here })
      const { services: loaded } = load()
      const theirs = Object.values(loaded).filter(({ build }) => build === undefined)
      const sources = theirs.flatMap(({ volumes = [] }) => volumes.filter(({ type }) => type === 'bind'))
      const hidden = ['!', '-perm', '-o=r', '-print']
      expect(execFileSync('find', [...sources.map(({ source }) => source), ...hidden], { encoding: 'utf8' })).toBe('')
      const names = Object.keys(loaded)
      const addressOf = (name: string) => `10.203.117.${10 + names.indexOf(name)}`
      const started = (name: string) => startOf(loaded[name]!, addressOf(name))
      const parts = names.filter(name => loaded[name]!.build && name !== 'setup')
      expect(parts).toHaveLength(5)
      writeFileSync(join(folder, 'hosts'), names.map(name => `${addressOf(name)} ${name}\n`).join(''))
      const config = join(here, '../monitoring/prometheus.yaml')
      const script = `
cd '${here}'
mount --bind '${join(folder, 'hosts')}' /etc/hosts
ip link set lo up
${names.map(name => `ip address add ${addressOf(name)}/32 dev lo`).join('\n')}
${started('setup')}
${parts.map(name => `${started(name)} 2>'${join(folder, name)}.log' &`).join('\n')}
prometheus --config.file='${config}' --storage.tsdb.path='${folder}/data' --web.listen-address=prometheus:9090 2>/dev/null &
again() { for _ in $(seq 600); do if "$@"; then return; fi; sleep 0.1; done; exit 1; }
answers() { ${curl} --silent --fail --noproxy '*' --connect-to demo.tunnels.localhost:8443:sallyport-server:8443; }
scraped() { curl --silent --noproxy '*' 'http://prometheus:9090/api/v1/query?query=sum(up)' | grep --quiet '"3"'; }
again answers
again scraped
`
      const command = ['--net', '--mount', '--pid', '--fork', '--kill-child', '/bin/sh', '-ec', script]
      const { stdout } = await promisify(execFile)('unshare', command, { env: { PATH: process.env.PATH! } })
      expect(stdout).toMatch(/\S/)
    },
  )
})

/** A service's shell command: its folders at their places on this machine, its listeners at its address. */
function startOf({ command, entrypoint, environment = {}, volumes = [] }: Service, address: string): string {
  const places = [
    ...volumes.map(({ source, target }) => [target, source] as const),
    ['/app', resolve('.')] as const,
    ['0.0.0.0', address] as const,
  ]
  const here = (text: string) =>
    places.reduce((known, [from, to]) => known.replaceAll(new RegExp(`(?<=^|[\\s:])${from}(?=[/:])`, 'g'), to), text)
  const words = [...(entrypoint ?? ['node', '/app/bin/sallyport.js']), ...command]
  const values = Object.entries(environment).map(([name, value]) => `${name}=${here(value)}`)
  const node = words.map(word =>
    here(word)
      .replaceAll('$$', '$')
      .replaceAll(/(?<=^|\s)node(?=\s|$)/g, process.execPath),
  )
  return ['env', '-i', `PATH=${process.env.PATH}`, 'SALLYPORT_ADMIN_LISTEN=off', ...values, ...node]
    .map(word => `'${word.replaceAll("'", "'\\''")}'`)
    .join(' ')
}
