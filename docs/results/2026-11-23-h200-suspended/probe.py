"""probe.py MODE: which work of another program in the same context makes BERT's graph slower afterwards?"""
import os, sys, json, time, statistics as st
ROOT="/tmp/tally-bundle"
sys.path[:0]=[ROOT+"/bench/colocation", ROOT+"/bench/support"]
if sys.argv[1] in ("high", "low"):
    from worker import Lines
    lines=Lines()
    import torch
    if sys.argv[1]=="high":
        import inference_models
        svc=inference_models.build("bert-graph")
        a,b=(torch.cuda.Event(enable_timing=True) for _ in range(2))
        lines.say({"ready":True})
        while True:
            q=lines.poll(None); out=[]
            for i in range(q["n"]):
                a.record()
                with torch.inference_mode(): svc.run()
                b.record(); torch.cuda.synchronize()
                out.append(round(a.elapsed_time(b)*1e3))
                if q.get("gap"): time.sleep(q["gap"])
            lines.say({"us":out})
    import training_models
    x=torch.randn(4096,4096,device="cuda",dtype=torch.bfloat16); y=torch.zeros(1<<20,device="cuda"); h=torch.randn(1<<20).pin_memory()
    img=torch.randn(16,64,112,112,device="cuda",dtype=torch.bfloat16); conv=torch.nn.Conv2d(64,64,3).cuda().bfloat16()
    tr={}
    def step(name,n=1):
        if name not in tr: tr[name]=training_models.build(name)
        for _ in range(n): tr[name].step()()
    acts={"nothing":lambda:None,"elementwise":lambda:y.add_(1),"100 elementwise":lambda:[y.add_(1) for _ in range(100)],"matmul":lambda:x@x,"h2d":lambda:y.copy_(h,non_blocking=True),"d2h":lambda:h.copy_(y,non_blocking=True),
          "conv":lambda:conv(img),"softmax":lambda:torch.softmax(x.float(),-1),"sort":lambda:torch.sort(y),"random":lambda:torch.randn(1<<22,device="cuda"),"pointnet":lambda:step("pointnet"),"resnet50":lambda:step("resnet50"),
          "5 pointnet":lambda:step("pointnet",5),"dropout":lambda:torch.nn.functional.dropout(y,0.3),"adamw":lambda:tr["pointnet"].optimizer.step(),
          "forward":lambda:tr["pointnet"].loss(*[p.cuda() for p in tr["pointnet"].batch])}
    lines.say({"ready":True})
    while True:
        q=lines.poll(None); acts[q["do"]]()
        if not q.get("behind"): torch.cuda.synchronize()
        lines.say({"ok":True})
import modes, ways
from child import Child
mode=sys.argv[1]
with modes.enter(ROOT, mode, False) as place:
    def start(role,kind): return Child(place.command([sys.executable,os.path.abspath(__file__),role],kind),role,{**os.environ,**place.environment(kind)})
    high=start("high","service"); high.answer(60)
    def measure(label, n=16, **more):
        high.say(json.dumps({"n":n,**more})); us=high.answer(30)["us"]
        print(f"{mode:22s} {label:44s} first {us[0]:5d} median of the others {st.median(us[1:]):6.1f}  {us[1:9]}",flush=True)
    for _ in range(3): measure("alone",60)
    low=start("low","training"); low.answer(60)
    measure("the other is there")
    def do(what,**more):
        low.say(json.dumps({"do":what,**more})); low.answer(60)
    for turn in range(2):
        for what in ("nothing","elementwise","100 elementwise","matmul","h2d","d2h","conv","softmax","sort","random","dropout","pointnet","nothing","elementwise","pointnet","5 pointnet","matmul","forward","nothing","adamw","nothing","resnet50","nothing","h2d","elementwise"):
            do(what); measure("after "+what)
    do("5 pointnet"); measure("after 5 pointnet, 5 ms apart",30,gap=0.005)
    measure("again"); time.sleep(0.5); measure("after 0.5 s"); time.sleep(3); measure("after 3 s")
    low.end(5); time.sleep(0.5); measure("the other has left")
    high.end(5)
