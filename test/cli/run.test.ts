import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { flagsOf } from '../../cli/catalog/flags.ts'
import { COMMANDS } from '../../cli/commands.ts'
import { sallyport } from './run.ts'

describe('help', () => {
  test.each(COMMANDS.map(({ name }) => name))('%s: an example comes first, every flag is in it', async name => {
    const { code, out, notes } = await sallyport([...name.split(' '), '--help'])
    expect(code).toBe(0)
    expect(notes).toBe('')
    expect(out).toMatch(/^Example:\n {2}sallyport /)
    const command = COMMANDS.find(candidate => candidate.name === name)!
    for (const flag of Object.keys(flagsOf(command))) expect(out).toContain(`--${flag}`)
  })

  test.each(COMMANDS.map(({ name, example }) => [name, example]))(
    '%s: its example is a line that parses',
    async (name, example) => {
      const words = example.replaceAll('\\\n', ' ').replaceAll("'", '').split(/\s+/)
      const { notes } = await sallyport([
        ...words.slice(1, words.includes('>') ? words.indexOf('>') : undefined),
        '--help',
      ])
      expect(words[0]).toBe('sallyport')
      expect(words.slice(1, 1 + name.split(' ').length).join(' ')).toBe(name)
      expect(notes).toBe('')
    },
  )

  test.each(['server', 'client', 'router'])('flags of %s are listed below what they belong to', async name => {
    const { out } = await sallyport([name, '--help'])
    const others = out.slice(out.indexOf('\nOthers:'))
    expect(others.match(/^ {2}-\S+/gm)).toEqual(['  --config', '  -q', '  -v', '  --help'])
    expect(out.indexOf('\nOperation:')).toBeLessThan(out.indexOf('  --log.level'))
  })

  test('of all commands, and of a group', async () => {
    const all = await sallyport(['--help'])
    for (const { name } of COMMANDS) expect(all.out).toContain(name.split(' ')[0])
    const group = await sallyport(['certs', '--help'])
    expect(group.out).toContain('certs export')
    expect(group.out).not.toContain('token create')
    expect(await sallyport(['help', 'token', 'create'])).toEqual(await sallyport(['token', 'create', '--help']))
  })
})

test('--version is the one in package.json', async () => {
  const { version } = JSON.parse(readFileSync('package.json', 'utf8')) as { version: string }
  expect(await sallyport(['--version'])).toEqual({ code: 0, out: `${version}\n`, notes: '' })
})

test('version --json has what a report needs', async () => {
  const { out } = await sallyport(['version', '--json'])
  expect(JSON.parse(out)).toMatchObject({ protocol: 'sallyport.v1.0', node: process.versions.node })
})

test.each(['sessions', 'runtimes', 'revocations', 'inbox'])(
  '%s alone lists, with the flags of its list',
  async name => {
    const admin = ['--admin', '127.0.0.1:9', '--json']
    const alone = await sallyport([name, ...admin])
    expect(alone).toEqual(await sallyport([name, 'list', ...admin]))
    expect(alone.notes).toContain('http://127.0.0.1:9 does not answer')
    expect((await sallyport([name, '--lane-of'])).notes).toContain(`${name} list: unknown flag --lane-of`)
    expect((await sallyport([name, '--help'])).out).toContain(`Usage: sallyport ${name} COMMAND`)
  },
)

test('`--help` after two words of three lists the commands', async () => {
  expect(await sallyport(['config', 'validate', '--help'])).toEqual(await sallyport(['config', '--help']))
})

describe('usage errors: exit 2, one line, nothing on stdout', () => {
  test.each([
    [['sevrer'], 'unknown command sevrer; did you mean server?'],
    [['certs', 'int'], 'unknown command certs int; did you mean init?'],
    [['config', 'print'], 'config print needs one of: server, client, router'],
    [['config', 'print', '--domain', 'x'], 'config print needs one of: server, client, router'],
    [['server', '--domian', 'x'], 'server: unknown flag --domian; did you mean --domain? (sallyport server --help)'],
    [['server', '-d', 'x'], 'server: unknown flag -d (sallyport server --help)'],
    [['server', '--domain'], 'server: --domain needs a value: NAME (sallyport server --help)'],
    [['server', 'x'], 'server: unexpected argument "x" (sallyport server --help)'],
    [['keys', 'create'], '--out is missing'],
    [
      ['keys', 'create', '--out', 'a', '--out', 'b'],
      'keys create: --out is given twice (sallyport keys create --help)',
    ],
    [
      ['revoke', '--runtime', 'demo', '--json=yes'],
      'revoke: --json: "yes" is neither true nor false (sallyport revoke --help)',
    ],
    [['certs', 'show'], 'certs show: FILE is missing (sallyport certs show --help)'],
    [['client', '--connections', '0'], '--connections: "0" is not valid, expected a whole number from 1 to 16'],
    [
      ['client', '--server', 'nonsense'],
      '--server: "nonsense" is not valid, expected a URL with wss:// or ws:// or https:// or http://',
    ],
  ])('%j', async (args, message) => {
    expect(await sallyport(args)).toEqual({ code: 2, out: '', notes: `sallyport: ${message}\n` })
  })

  test('no command at all, or half of one: the help, on stderr', async () => {
    const none = await sallyport([])
    expect(none).toMatchObject({ code: 2, out: '' })
    expect(none.notes).toContain('Commands:')
    const half = await sallyport(['token'])
    expect(half).toMatchObject({ code: 2, out: '' })
    expect(half.notes).toContain('token inspect')
  })
})

test('no error passes a control character on to the terminal', async () => {
  const { code, notes } = await sallyport(['inspect', 'show', 'a', '--admin', 'a\x1b]0;owned\x07\u009b2J\u202eb'])
  expect([code, notes]).toEqual([2, expect.stringMatching(/^sallyport: --admin a\?\]0;owned\?\?2J\?b: [^\n]+\n$/)])
})
