import { execFileSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { describe, expect, test } from 'vitest'
import { runTokenCommand, splitCommand } from '../../../cli/service/token-command.ts'
import { eventually } from '../../support/until.ts'

const node = (program: string) => [process.execPath, '-e', program]

describe('split', () => {
  test.each([
    ['print-token', ['print-token']],
    ['  vault read  -field=token secret/demo ', ['vault', 'read', '-field=token', 'secret/demo']],
    ['"/opt/my tools/get" \'a "b" c\' ""', ['/opt/my tools/get', 'a "b" c', '']],
    ['x "a \\"b\\" c"', ['x', 'a "b" c']],
    ['x $HOME;rm `y` | z', ['x', '$HOME;rm', '`y`', '|', 'z']],
  ])('%j', (text, words) => {
    expect(splitCommand(text)).toEqual(words)
  })

  test.each(['"open', "it's", 'a"b"', '', '   '])('%j is refused', text => {
    expect(() => splitCommand(text)).toThrow(TypeError)
  })
})

describe('run', () => {
  test('its standard output, trimmed, is the token', async () => {
    await expect(runTokenCommand(node('console.log("  a.b.c  ")'))).resolves.toBe('a.b.c')
  })

  test('there is no shell in between', async () => {
    const words = [...node('console.log(process.argv[1])'), '$(id)']
    await expect(runTokenCommand(words)).resolves.toBe('$(id)')
  })

  test.each([
    ['fails', 'console.log("secret.token.x"); process.exit(3)', 'the token command ended with exit code 3'],
    ['prints nothing', '', 'the token command printed no token'],
    ['prints two words', 'console.log("a b")', 'the token command printed no token'],
    [
      'prints endlessly',
      'for (;;) process.stdout.write("x".repeat(4096))',
      'the token command printed more than 16 KiB',
    ],
  ])('one that %s: the message contains nothing of what it printed', async (_, program, message) => {
    await expect(runTokenCommand(node(program))).rejects.toMatchObject({ message })
  })

  test('one that hangs is killed at the deadline', async () => {
    const slow = runTokenCommand(node('setInterval(() => {}, 1000)'), 300)
    await expect(slow).rejects.toThrow('the token command did not end within 0.3 s')
  })

  /** One that nobody has waited for yet has ended anyway. */
  const isAlive = (pid: number) => {
    try {
      return !/\) [ZX]/.test(readFileSync(`/proc/${pid}/stat`, 'utf8'))
    } catch {
      return false
    }
  }

  test.each([
    ['late', (words: string[], _: AbortSignal) => runTokenCommand(words, 3000)],
    ['given up', (words: string[], signal: AbortSignal) => runTokenCommand(words, undefined, signal)],
  ])('what a shell has started ends with it, when it is %s', async (_, begin) => {
    const pidFile = join(mkdtempSync(join(tmpdir(), 'sallyport-command-')), 'pid')
    const closing = new AbortController()
    const running = begin(['sh', '-c', `sleep 1000 & echo $! > ${pidFile}; wait`], closing.signal)
    running.catch(() => {})
    await eventually(() => expect(readFileSync(pidFile, 'utf8')).toMatch(/^\d+\n$/))
    closing.abort()
    await expect(running).rejects.toThrow()
    const pid = Number(readFileSync(pidFile, 'utf8'))
    await eventually(() => expect(isAlive(pid)).toBe(false))
    rmSync(dirname(pidFile), { recursive: true })
  })

  test('a missing one', async () => {
    await expect(runTokenCommand(['/nowhere/print-token'])).rejects.toThrow('the token command does not start (ENOENT)')
  })

  // Callers who keep many requests open can use up all file descriptors.
  test.runIf(process.platform !== 'win32')('without a file descriptor left, it fails, and this process goes on', () => {
    const program = `
      import { openSync } from 'node:fs'
      const { runTokenCommand } = await import(${JSON.stringify(resolve('cli/service/token-command.ts'))})
      try { for (;;) openSync('/dev/null') } catch {}
      const failed = runTokenCommand(['true'])
      process.once('beforeExit', () => console.log('goes on'))
      await failed.catch(({ message }) => console.log(message))
    `
    const words = ['-c', 'ulimit -n 100; exec "$@"', 'sh', process.execPath, '--input-type=module', '-e', program]
    expect(execFileSync('/bin/sh', words, { encoding: 'utf8' })).toBe(
      'the token command does not start (EMFILE)\ngoes on\n',
    )
  })
})
