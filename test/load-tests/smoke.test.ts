/** A run of seconds over the setups: every answer arrives and is right. Speed does not matter here. */
import { execFile, spawn } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { processTree } from '../../load-tests/lib/cpu.ts'
import type { Report } from '../../load-tests/lib/report.ts'
import { countWrong } from '../../load-tests/lib/section.ts'
import { Browser } from '../support/devtools.ts'
import { long, needs, short } from '../support/needs.ts'

const BENCH = resolve(import.meta.dirname, '../../load-tests/bench.ts')
/** The others start more processes, and take as long again. */
const USUAL = ['small', 'webhook', 'bulk', 'mixed', 'websocket', 'sse', 'mux']
const ALL = [...USUAL, 'inbox', 'rates', 'slow', 'wan', 'idle', 'storm', 'soak']

interface Ran {
  readonly code: number
  readonly text: string
}

function bench(...args: string[]): Promise<Ran> {
  return new Promise(resolve => {
    execFile(process.execPath, [BENCH, ...args], (error, stdout, stderr) =>
      resolve({ code: error === null ? 0 : Number(error.code), text: stdout + stderr }),
    )
  })
}

test('--list names every scenario', async () => {
  const { code, text } = await bench('--list')
  expect(code).toBe(0)
  expect(text.split('\n').map(line => line.split(' ')[0])).toEqual(expect.arrayContaining(ALL))
})

test.each([
  [['--only', 'nothing'], 'no scenario is called nothing; --list names them'],
  [['--peers', 'nobody'], 'no peer is called nobody'],
  [['--generator', 'ab'], '--generator is autocannon or wrk'],
  [['--minutes', 'x'], '--minutes is a number above 0'],
])('%j is refused', async (args, sentence) => {
  const { code, text } = await bench(...args)
  expect(code).toBe(2)
  expect(text).toContain(sentence)
})

/** A zombie counts as gone: it waits only for its parent. */
function isAlive(pid: number): boolean {
  try {
    return !/\) [ZX] /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'))
  } catch {
    return false
  }
}

test.runIf(needs('nginx', 'setpriv'))('a run that is killed leaves nothing behind', { tags: ['slow'] }, async () => {
  const run = spawn(process.execPath, [BENCH, '--smoke', '--only', 'soak', '--minutes', '1'])
  let said = ''
  run.stderr.on('data', text => (said += text))
  await expect.poll(() => said).toMatch(/ soak$/m)
  const [, ...started] = processTree(run.pid!)
  // nginx and its worker, the app, the pair, the proxy, and two generators.
  expect(started.length).toBeGreaterThanOrEqual(7)
  run.kill('SIGKILL')
  await expect.poll(() => started.filter(isAlive)).toEqual([])
})

describe.runIf(needs('nginx'))('the smoke run', () => {
  const names = long ? ALL : short ? USUAL.slice(0, 1) : USUAL
  let folder: string
  let ran: Ran
  let report: Report

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'sallyport-smoke-'))
    ran = await bench('--smoke', '--out', folder, ...names.flatMap(name => ['--only', name]))
    report = JSON.parse(await readFile(join(folder, 'report.json'), 'utf8'))
  })

  afterAll(() => rm(folder, { recursive: true, force: true }))

  test('ends well, and no answer was wrong, short or missing', () => {
    expect(ran.code, ran.text).toBe(0)
    expect(report.skipped).toEqual([])
    for (const section of report.sections) expect(countWrong(section), section.name).toBe(0)
  })

  test('measured every requested scenario, with answers in each row', () => {
    for (const name of names)
      expect(
        report.sections.some(section => section.name.startsWith(name)),
        name,
      ).toBe(true)
    const small = report.sections.find(section => section.name === 'small-8')!
    expect(small.measured.map(row => row.key)).toEqual(['nginx', 'ingress', 'tunnel', 'tunnel-tls', 'tunnel-h2'])
    for (const row of small.measured) expect(row.figures.perSecond!.min, row.name).toBeGreaterThan(0)
  })

  test('its report says where and how it was made', () => {
    expect(Object.keys(report.environment)).toEqual(
      expect.arrayContaining(['machine', 'kernel', 'node', 'commit', 'command', 'programs']),
    )
  })

  describe.runIf(needs('chromium'))('its report in a browser', () => {
    test('shows its charts, logs nothing and requests nothing', async () => {
      const browser = await Browser.open()
      try {
        const page = await browser.page(pathToFileURL(join(folder, 'report.html')).href)
        await page.until('document.readyState === "complete" && document.querySelector("figure svg")')
        const charts = report.sections.reduce((sum, section) => sum + section.charts.length, 0)
        expect(charts).toBeGreaterThan(0)
        expect(await page.value('document.querySelectorAll("figure svg").length')).toBe(charts)
        const drawn = '[...document.querySelectorAll("svg")].every(svg => svg.getBoundingClientRect().height > 40)'
        expect(await page.value(drawn)).toBe(true)
        const marks = '[...document.querySelectorAll("svg")].every(svg => svg.querySelector("rect, polyline"))'
        expect(await page.value(marks)).toBe(true)
        expect(await page.value('document.documentElement.scrollWidth <= innerWidth')).toBe(true)
        const paper = 'getComputedStyle(document.body).backgroundColor'
        await page.setColours('light')
        const light = await page.value(paper)
        await page.setColours('dark')
        expect(await page.value(paper)).not.toBe(light)
        expect(browser.complaints).toEqual([])
        expect(browser.requests.filter(url => !url.startsWith('file:') && !url.startsWith('data:'))).toEqual([])
      } finally {
        await browser.close()
      }
    })
  })
})
