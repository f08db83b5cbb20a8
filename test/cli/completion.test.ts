import { spawnSync } from 'node:child_process'
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { COMMANDS } from '../../cli/commands.ts'
import { complete } from '../../cli/completion.ts'
import { needs } from '../support/needs.ts'
import { sallyport } from './run.ts'

const words = (...line: string[]) => {
  const found = complete(line)
  return found === 'files' ? found : found.map(({ word }) => word)
}

describe('candidates', () => {
  test('the first word of every command, once', () => {
    expect(words('')).toEqual([...new Set(COMMANDS.map(({ name }) => name.split(' ')[0]))])
  })

  test.each([
    [['ser'], ['server']],
    [
      ['certs', 's'],
      ['server', 'show'],
    ],
    [
      ['config', 'print', ''],
      ['server', 'client', 'router'],
    ],
    [['inbox', 'list', '--st'], ['--state']],
    [['inbox', '--st'], ['--state']],
    [
      ['inbox', '--state', ''],
      ['waiting', 'dead', 'delivered'],
    ],
    [
      ['inbox', 'list', '--state', ''],
      ['waiting', 'dead', 'delivered'],
    ],
    [
      ['client', '--tls.min', ''],
      ['1.3', '1.2'],
    ],
    [['client', '--token.file', ''], 'files'],
    [['server', '--public.tls.folder', ''], 'files'],
    [['certs', 'show', ''], 'files'],
    [['sessions', 'close', '--session', ''], []],
    [['no-such', ''], []],
    [['certs', 'init', '--host', 'a', '--hos'], ['--host']],
    [['certs', 'init', '--out', 'a', '--ou'], []],
    [['server', '--constructor', ''], []],
  ])('%j', (line, expected) => expect(words(...line)).toEqual(expected))

  test('every command can be reached word by word, and offers exactly its flags', () => {
    for (const { name } of COMMANDS) {
      const parts = name.split(' ')
      for (const at of parts.keys()) expect(words(...parts.slice(0, at + 1))).toContain(parts[at])
      for (const flag of words(...parts, '--')) expect(flag).toMatch(/^--[a-z]/)
    }
  })
})

test('`words` prints a tab and the description, and `--help` in the line does not ask for help', async () => {
  const { out } = await sallyport(['completion', 'words', '--', 'drain', '--help', '--gra'])
  expect(out).toBe('--grace\tHow long open exchanges may continue; default 30s.\n')
  expect((await sallyport(['completion', 'words', '--', 'keys', 'create', '--out', ''])).out).toBe(':files\n')
})

describe('in real shells', () => {
  let folder: string
  const run = async (shell: 'bash' | 'zsh' | 'fish', script: string, flags: string[] = []) => {
    const { out } = await sallyport(['completion', shell])
    writeFileSync(join(folder, `completion.${shell}`), out)
    const env = { ...process.env, PATH: `${folder}:${process.env.PATH}` }
    const { stdout, stderr } = spawnSync(shell, [...flags, '-c', script], { cwd: folder, env, encoding: 'utf8' })
    return { stdout, stderr }
  }
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'sallyport-completion-'))
    writeFileSync(
      join(folder, 'sallyport'),
      `#!/bin/sh\nexec '${process.execPath}' '${resolve('bin/sallyport.js')}' "$@"\n`,
    )
    chmodSync(join(folder, 'sallyport'), 0o755)
    writeFileSync(join(folder, 'a-file.pem'), '')
  })
  afterAll(() => rmSync(folder, { recursive: true }))

  test('bash', async () => {
    const script = `. ./completion.bash
      COMP_WORDS=(sallyport certs s); COMP_CWORD=2; _sallyport; echo "\${COMPREPLY[@]}"
      COMP_WORDS=(sallyport inbox list --state ''); COMP_CWORD=4; _sallyport; echo "\${COMPREPLY[@]}"
      COMP_WORDS=(sallyport certs show ''); COMP_CWORD=3; _sallyport; echo "\${#COMPREPLY[@]}"`
    expect(await run('bash', script)).toEqual({ stdout: 'server show\nwaiting dead delivered\n0\n', stderr: '' })
  })

  test.runIf(needs('zsh'))('zsh', async () => {
    const script = `compdef() {}; _files() { print files }; _describe() { print -l -- $found }
      cp completion.zsh _sallyport; fpath=(.); autoload -U _sallyport
      words=(sallyport certs s); CURRENT=3; _sallyport
      unfunction _sallyport; . ./completion.zsh
      words=(sallyport certs s); CURRENT=3; _sallyport
      words=(sallyport certs show ''); CURRENT=4; _sallyport`
    const { stdout, stderr } = await run('zsh', script, ['-f'])
    expect(stderr).toBe('')
    expect(stdout).toMatch(/^(server:Creates another [^\n]*\nshow:Describes [^\n]*\n){2}files\n$/)
  })

  test.runIf(needs('fish'))('fish', async () => {
    const script = `. ./completion.fish
      complete -C 'sallyport certs s'
      complete -C 'sallyport certs show a-f'`
    const { stdout, stderr } = await run('fish', script, ['--no-config'])
    expect(stderr).toBe('')
    expect(stdout).toMatch(/^server\tCreates another [^\n]*\nshow\tDescribes [^\n]*\na-file\.pem\n$/)
  })
})
