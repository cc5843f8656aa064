// Chromium with a software adapter, or with none.
import { createRequire } from "node:module";
import { join } from "node:path";

const { chromium } = createRequire(join(process.env.TILEWRIGHT_NODE ?? process.cwd(), "x"))("playwright-core");

// A busy machine draws too slowly for the watchdog, which ends what has only to wait.
const SWIFTSHADER = ["--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--disable-gpu-watchdog"];
const ADAPTER = ["--enable-unsafe-webgpu", "--enable-features=Vulkan", "--use-vulkan=swiftshader"];

export const open = (adapter, flags = []) =>
  chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--headless=new", "--no-sandbox", ...SWIFTSHADER, ...(adapter ? ADAPTER : []), ...flags],
    ignoreDefaultArgs: ["--disable-gpu"],
  });
