import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { COMPONENTS, everySettingName } from '../../../cli/config/components.ts'
import { loadConfig } from '../../../cli/config/load.ts'
import { environmentName, type Settings } from '../../../cli/config/setting.ts'

let folder: string
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'sallyport-config-'))
})
afterAll(() => rmSync(folder, { recursive: true }))

interface Given {
  flags?: Record<string, string[]>
  environment?: Record<string, string>
  yaml?: string
}

function load(given: Given, settings: Settings = COMPONENTS.server) {
  let configFile: string | undefined
  if (given.yaml !== undefined) {
    configFile = join(folder, 'x.yaml')
    writeFileSync(configFile, given.yaml)
  }
  const flags = new Map(Object.entries(given.flags ?? {}))
  return loadConfig(settings, {
    flags,
    environment: given.environment ?? {},
    configFile,
    everyName: everySettingName(),
  })
}

describe('precedence', () => {
  const flags = { 'auth.audience': ['by-flag'] }
  const environment = { SALLYPORT_AUTH_AUDIENCE: 'by-variable' }
  const yaml = 'auth: { audience: by-file }'

  test.each<[string, Given, string, string]>([
    ['flag over variable', { flags, environment }, 'by-flag', 'flag'],
    ['flag over file', { flags, yaml }, 'by-flag', 'flag'],
    ['flag over default', { flags }, 'by-flag', 'flag'],
    ['variable over file', { environment, yaml }, 'by-variable', 'environment'],
    ['variable over default', { environment }, 'by-variable', 'environment'],
    ['file over default', { yaml }, 'by-file', 'file'],
    ['default', {}, 'sallyport', 'default'],
    ['flag over all', { flags, environment, yaml }, 'by-flag', 'flag'],
  ])('%s', async (_, given, value, source) => {
    const { values, origins } = await load(given)
    expect(values['auth.audience']).toBe(value)
    expect(origins.get('auth.audience')!.source).toBe(source)
  })

  test('a list is replaced as a whole, never merged', async () => {
    const { values } = await load({
      flags: { domain: ['a.example', 'b.example'] },
      environment: { SALLYPORT_DOMAIN: 'c.example' },
    })
    expect(values.domain).toEqual(['a.example', 'b.example'])
  })
})

describe('environment', () => {
  test('an unknown variable causes a warning with the nearest one', async () => {
    const { warnings } = await load({ environment: { SALLYPORT_DOMIAN: 'x', SALLYPORT_WHATEVER_ELSE: 'y' } })
    expect(warnings).toEqual([
      'unknown variable SALLYPORT_DOMIAN is ignored; did you mean SALLYPORT_DOMAIN?',
      'unknown variable SALLYPORT_WHATEVER_ELSE is ignored',
    ])
  })

  test("other components' and programs' variables are ignored", async () => {
    const { warnings } = await load({ environment: { SALLYPORT_TOKEN_FILE: '/t', SALLYPORTX: '1', HOME: '/root' } })
    expect(warnings).toEqual([])
  })

  test('what Kubernetes injects for a Service named sallyport, sallyport-server or sallyport-token is ignored', async () => {
    const { warnings, values } = await load({
      environment: {
        SALLYPORT_SERVICE_HOST: '10.0.0.1',
        SALLYPORT_SERVICE_PORT: '443',
        SALLYPORT_SERVICE_PORT_CONTROL: '8443',
        SALLYPORT_PORT: 'tcp://10.0.0.1:443',
        SALLYPORT_PORT_443_TCP: 'tcp://10.0.0.1:443',
        SALLYPORT_PORT_443_TCP_PROTO: 'tcp',
        SALLYPORT_PORT_443_TCP_PORT: '443',
        SALLYPORT_PORT_443_TCP_ADDR: '10.0.0.1',
        SALLYPORT_SERVER_SERVICE_HOST: '10.0.0.1',
        SALLYPORT_SERVER_PORT: 'tcp://10.0.0.1:443',
        SALLYPORT_SERVER_PORT_8443_TCP: 'tcp://10.0.0.1:8443',
        SALLYPORT_TOKEN_PORT_53_UDP: 'udp://10.0.0.1:53',
      },
    })
    expect(warnings).toEqual([])
    expect(values.domain).toBeUndefined()
  })

  test.each(Object.entries(COMPONENTS))(
    'no two settings of the %s share a variable, and none looks like a service link',
    (_, settings) => {
      const variables = Object.keys(settings).map(environmentName)
      expect(new Set(variables).size).toBe(variables.length)
      expect(variables.filter(name => /_PORT$|_SERVICE_HOST$|_SERVICE_PORT/.test(name))).toEqual([])
    },
  )
})

describe('file', () => {
  test('mappings nest along the dots, and a key may contain dots', async () => {
    const { values } = await load({
      yaml: 'public:\n  tls: { cert: a.pem }\n  tls.key: b.pem\npublic.listen: 0.0.0.0:443\n',
    })
    expect(values).toMatchObject({
      'public.tls.cert': 'a.pem',
      'public.tls.key': 'b.pem',
      'public.listen': { host: '0.0.0.0', port: 443 },
    })
  })

  test.each([
    'preset: gitops-runtime\npreset.namespaces: [a, b]',
    'preset: { name: gitops-runtime, namespaces: [a, b] }',
  ])('a name that is both a value and a prefix: %j', async yaml => {
    const { values } = await load({ yaml }, COMPONENTS.client)
    expect(values).toMatchObject({ preset: 'gitops-runtime', 'preset.namespaces': ['a', 'b'] })
  })

  test.each([
    { flags: { 'preset.event-sources': [''] } },
    { environment: { SALLYPORT_PRESET_EVENT_SOURCES: '' } },
    { yaml: 'preset.event-sources: []' },
    { yaml: "preset.event-sources: ''" },
  ])('an empty list is given, and not the default: %j', async sources => {
    const { values } = await load(sources, COMPONENTS.router)
    expect(values['preset.event-sources']).toEqual([])
  })

  test('a name that looks like a number is kept as written', async () => {
    const { values } = await load({
      yaml: 'replica: 0x1F\nauth: { audience: 1.10 }\naccess: { runtimes: [12e5, 007, &id 10203040506070809010, *id], open: 1e3/x }',
    })
    expect(values).toMatchObject({
      replica: '0x1F',
      'auth.audience': '1.10',
      'access.runtimes': ['12e5', '007', '10203040506070809010', '10203040506070809010'],
      'access.open': ['1e3/x'],
    })
  })

  test.each([
    ['.5', 0.5],
    ['1e-3', 0.001],
    ['1.0', 1],
    ['0', 0],
  ])('a share: %s', async (ratio, value) => {
    const { values } = await load({ yaml: `tracing: { ratio: ${ratio} }` })
    expect(values).toMatchObject({ 'tracing.ratio': value })
  })

  test('lists, text with commas, switches, numbers and off', async () => {
    const { values } = await load(
      {
        yaml: 'server: wss://a:1\nallow: { callers: [] }\nca-only: true\nconnections: 3\nadmin: { listen: off }\nca: a, b',
      },
      COMPONENTS.client,
    )
    expect(values).toMatchObject({
      server: ['wss://a:1'],
      'allow.callers': [],
      'ca-only': true,
      connections: 3,
      'admin.listen': 'off',
      ca: ['a', 'b'],
    })
  })

  test.each([
    ['domian: x', 'x.yaml:1:1: unknown key domian; did you mean domain?'],
    ['public:\n  tsl: { cert: a }', 'x.yaml:2:3: unknown key public.tsl; did you mean public.tls?'],
    ['public: { tls: { crt: a } }', 'x.yaml:1:18: unknown key public.tls.crt; did you mean public.tls.cert?'],
    ['domain: { a: b }', 'x.yaml:1:1: domain takes a value, not a mapping'],
    ['public: yes', 'x.yaml:1:1: public contains further settings, such as public: { ... }'],
    ['public: { tls: { cert } }', 'x.yaml:1:18: public.tls.cert has no value: write public.tls.cert: ...'],
    ['access: {}', 'x.yaml:1:1: access contains further settings, such as access: { ... }'],
    ['access: { jwt: {} }', 'x.yaml:1:11: access.jwt contains further settings, such as access.jwt: { ... }'],
    ['? domain', 'x.yaml:1:3: domain has no value'],
    ['domain:', 'x.yaml:1:1 (domain): null is not valid'],
    ['- a', 'x.yaml:1:1: expected settings, such as "domain: ..."'],
    ['domain: a.b\ndomain: c.d', 'x.yaml:2:1: Map keys must be unique'],
    [
      'public.listen: nonsense',
      'x.yaml:1:1 (public.listen): "nonsense" is not valid, expected HOST:PORT, such as 127.0.0.1:8080 or [::1]:0',
    ],
    ['log: { level: loud }', 'x.yaml:1:8 (log.level): "loud" is not valid, expected one of debug, info, warn, error'],
    ['public: { plaintext: maybe }', 'x.yaml:1:11 (public.plaintext): "maybe" is not valid, expected true or false'],
  ])('%j', async (yaml, message) => {
    await expect(load({ yaml })).rejects.toThrow(`${folder}/${message}`)
  })

  test('a missing file', async () => {
    const sources = { flags: new Map(), environment: {}, configFile: '/nowhere/x.yaml', everyName: [] }
    await expect(loadConfig(COMPONENTS.server, sources)).rejects.toMatchObject({
      message: 'cannot read the configuration file /nowhere/x.yaml: no such file',
      exitCode: 3,
    })
  })
})

describe('the message about a refused value', () => {
  const refused = Object.values(COMPONENTS).flatMap(settings =>
    Object.entries(settings as Settings).filter(([, { kind }]) => {
      try {
        kind.read('other://user:planted@host/')
        return false
      } catch {
        return true
      }
    }),
  )
  test.each([...new Map(refused)])('of %s omits credentials', async (name, setting) => {
    const settings = { [name]: setting }
    const url = 'other://user:planted@host/'
    for (const given of [
      { flags: { [name]: [url] } },
      { environment: { [environmentName(name)]: url } },
      { flags: { [name]: ['user:planted@host'] } },
      { flags: { [name]: ['other://host/?key=planted'] } },
      { yaml: `${name}: ["${url}", "redis://:planted@a,b"]` },
      { yaml: `${name}: ["a\\"planted@host", "other://host/?key=planted"]` },
    ]) {
      const { message } = await load(given, settings).catch(error => error)
      expect(message).toContain('expected')
      expect(message).not.toContain('planted')
    }
  })
})

test.each(['*planted', '|planted', '}\nplanted: a'])(
  'the text that a file quotes may hold a secret: %s',
  async text => {
    const error = await load({ yaml: `domain: ${text}` }).catch(error => error)
    expect(error.message).toMatch(/x\.yaml:1:\d+: /)
    expect(error.message).not.toContain('planted')
  },
)

test.each(['*nothing', '&a [*a]'])('an alias that leads nowhere is reported with its place: %s', async alias => {
  await expect(load({ yaml: `domain: ${alias}` })).rejects.toMatchObject({
    exitCode: 3,
    message: expect.stringMatching(/x\.yaml:1:1: [^\n]*$/),
  })
})
