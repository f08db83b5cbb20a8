/** The file in a developer's home that makes `sallyport client 3000` suffice. */
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { sallyport } from '../run.ts'

let home: string
let other: string
beforeAll(() => {
  home = mkdtempSync(join(tmpdir(), 'sallyport-home-'))
  mkdirSync(join(home, '.config', 'sallyport'), { recursive: true })
  mkdirSync(join(home, 'xdg', 'sallyport'), { recursive: true })
  writeFileSync(join(home, '.config', 'sallyport', 'client.yaml'), 'audience: by-user\n')
  writeFileSync(join(home, 'xdg', 'sallyport', 'client.yaml'), 'audience: by-xdg\n')
  other = join(home, 'other.yaml')
  writeFileSync(other, 'log.level: warn\n')
})
afterAll(() => rmSync(home, { recursive: true }))

/** The audience that a client would use, and where `config print` says it is from. */
async function audience(environment: Record<string, string>, ...args: string[]): Promise<string> {
  const { out, notes } = await sallyport(['config', 'print', 'client', ...args], { environment })
  return out.split('\n').find(line => line.includes('audience')) ?? notes
}

describe('a client reads the settings of its user', () => {
  test.each([
    ['from ~/.config', () => ({ HOME: home })],
    ['from ~/.config on Windows', () => ({ USERPROFILE: home })],
    ['although XDG_CONFIG_HOME is not absolute', () => ({ HOME: home, XDG_CONFIG_HOME: 'xdg' })],
    ['although XDG_CONFIG_HOME is empty', () => ({ HOME: home, XDG_CONFIG_HOME: '' })],
  ])('%s', async (_, environment) => {
    expect(await audience(environment())).toContain(join('.config', 'sallyport', 'client.yaml'))
    expect(await audience(environment())).toContain('by-user')
  })

  test('from XDG_CONFIG_HOME, if it is set', async () => {
    expect(await audience({ HOME: home, XDG_CONFIG_HOME: join(home, 'xdg') })).toContain('by-xdg')
  })

  test.each([
    ['flag', () => ['--audience', 'by-flag'], {}, 'by-flag'],
    ['variable', () => [], { SALLYPORT_AUDIENCE: 'by-variable' }, 'by-variable'],
  ])('a %s overrides it', async (_, args, environment, expected) => {
    expect(await audience({ HOME: home, ...environment }, ...args())).toContain(expected)
  })
})

describe('another file takes its place', () => {
  test('with --config', async () => {
    expect(await audience({ HOME: home }, '--config', other)).toContain('sallyport')
    expect(await audience({ HOME: home }, '--config', other)).not.toContain('by-user')
  })

  test('with SALLYPORT_CONFIG', async () => {
    expect(await audience({ HOME: home, SALLYPORT_CONFIG: other })).not.toContain('by-user')
  })
})

test('a broken one is an error that names it', async () => {
  const broken = mkdtempSync(join(home, 'broken-'))
  mkdirSync(join(broken, 'sallyport'))
  writeFileSync(join(broken, 'sallyport', 'client.yaml'), 'audence: x\n')
  const { code, notes } = await sallyport(['config', 'print', 'client'], { environment: { XDG_CONFIG_HOME: broken } })
  expect(code).toBe(3)
  expect(notes).toContain(`${join(broken, 'sallyport', 'client.yaml')}:1:1: unknown key audence`)
})

test.each(['nowhere', 'client.yaml'])('a link to %s is an error, since the file may have allow.callers', async to => {
  const folder = mkdtempSync(join(home, 'link-'))
  mkdirSync(join(folder, 'sallyport'))
  const file = join(folder, 'sallyport', 'client.yaml')
  symlinkSync(to, file)
  const { code, notes } = await sallyport(['config', 'print', 'client'], { environment: { XDG_CONFIG_HOME: folder } })
  expect(code).toBe(3)
  expect(notes).toContain(file)
})

test.each([
  [
    'token.command: cat token',
    ['--token.file', 'token', '3000'],
    '--token.file and --token.command',
    '--token.file',
    'token.command',
  ],
  ['token.file: token\nroutes: routes.yaml', ['3000'], 'give only one of --target, --routes', '--target', 'routes'],
])('an error about %j names it', async (text, args, problem, flag, setting) => {
  const folder = mkdtempSync(join(home, 'both-'))
  mkdirSync(join(folder, 'sallyport'))
  const file = join(folder, 'sallyport', 'client.yaml')
  writeFileSync(file, `${text}\nserver: wss://connect.example.com\n`)
  for (const command of ['client', 'check client']) {
    const { code, out, notes } = await sallyport([...command.split(' '), ...args], {
      environment: { XDG_CONFIG_HOME: folder },
    })
    expect([3, 5]).toContain(code)
    expect(out + notes).toMatch(new RegExp(`${problem}.*; given: ${flag}, ${file}:\\d:1 \\(${setting}\\)`))
  }
})

test.each([
  ['no home', {}],
  ['an empty one', { HOME: '' }],
  ['one without the file', { HOME: '/nowhere' }],
  ['no folder', { HOME: '/dev/null' }],
])('%s: the defaults hold', async (_, environment) => {
  expect(await audience(environment)).toContain('sallyport')
})

test.each(['server', 'router'])('a %s does not read it', async component => {
  writeFileSync(join(home, '.config', 'sallyport', `${component}.yaml`), 'log.level: error\n')
  const { out } = await sallyport(['config', 'print', component], { environment: { HOME: home } })
  expect(out).not.toContain('.config')
})
